//! A thousand clusters of five machines, in process, on all processors: `cargo bench -p ichor-sim`.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark looks at the clock and says what it saw"
)]

#[path = "../tests/bring_up/driver.rs"]
mod driver;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use driver::{Cluster, Driver};
use ichor_sim::profile::Profile;

const CLUSTERS: u64 = 1000;

fn main() {
    let cluster = Cluster::new();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < CLUSTERS)
                {
                    Driver::new(seed, Profile::Instant, &cluster).bring_up();
                }
            });
        }
    });
    let took = began.elapsed();
    println!("{CLUSTERS} clusters of five machines on {threads} threads: {took:.1?}");
    let mut driver = Driver::new(1, Profile::Wan, &cluster);
    driver.bring_up_eagerly();
    let bound = driver.lab.ground.bound.lower();
    println!("one of them in real time: {} ms, of {} ms at least", bound.took_ms, bound.lower_bound_ms);
}
