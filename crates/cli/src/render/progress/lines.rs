//! Plain lines, where there is no terminal: logs, pipes, CI.

use std::time::Duration;

use ichor_engine::{Event, EventSink, Outcome};
use ichor_plan::ClusterPlan;

use super::{Clock, Course, Reader, log::Log};
use crate::{
    render::{duration, text},
    terminal::Pipe,
};

/// Writes a line for whatever happens.
#[derive(Debug)]
pub struct Lines(Log);

impl Lines {
    /// Writes nothing yet.
    pub fn new(plan: &ClusterPlan, clock: Clock, pipe: Pipe) -> Self {
        Self(Log::new(plan, clock, pipe))
    }
}

impl EventSink for Lines {
    fn emit(&self, event: Event) {
        self.0.with(|log, now| {
            log.course.take(&event, now);
            if let Some(line) = line(&log.course, &event) {
                log.write(&stamped(&line, now), now);
            }
        });
    }
}

impl Reader for Lines {
    fn tick(&self) {
        self.0.with(|log, now| {
            if !log.is_silent(now) {
                return;
            }
            if let Some((title, what, time)) = log.course.longest_running(now) {
                let count = log.course.count();
                let line = format!(
                    "{} of {} done, {} running; {title}: {what} (since {})",
                    count.done,
                    text::count(count.all, "step"),
                    count.running,
                    duration::clock(time),
                );
                log.write(&stamped(&line, now), now);
            } else if let Some((why, time)) = log.course.looking(now) {
                log.write(&stamped(&format!("{why} (since {})", duration::clock(time)), now), now);
            }
        });
    }

    fn say(&self, words: &str) {
        self.0.with(|log, now| log.write(&stamped(words, now), now));
    }

    fn lasted(&self) -> Vec<(String, Duration)> {
        self.0.with(|log, now| log.course.lasted(now))
    }
}

/// Returns a line of the log: when, and what.
fn stamped(line: &str, now: Duration) -> String {
    format!("{:>7}  {line}\n", duration::clock(now))
}

/// Says what happened in one line. How far a step is would be a line every moment: it is said when it is long.
fn line(course: &Course, event: &Event) -> Option<String> {
    let name = |step| {
        let (title, what) = course.name(step);
        if what.is_empty() { title } else { format!("{title}: {what}") }
    };
    Some(match event {
        Event::Began { steps } => format!("{} to do", text::count(*steps, "step")),
        Event::Started { step, attempt: 0 | 1 } => format!("{} ...", name(step)),
        Event::Started { step, attempt } => format!("{} ... (attempt {attempt})", name(step)),
        Event::Progress { .. } => return None,
        Event::Waiting { step, waited, why } => {
            format!("{}: after {}, {}", name(step), duration::exact(*waited), text::safe_line(why))
        }
        Event::Retrying { step, after, why } => {
            format!("{}: {}; again in {}", name(step), text::safe_line(why), duration::exact(*after))
        }
        Event::Ended { step, outcome, took } => {
            format!("{}: {}", name(step), ended(outcome, &duration::exact(*took)))
        }
        Event::Looking { why } => text::safe_line(why),
        Event::Stopping => "stopped: nothing else is begun".to_owned(),
    })
}

fn ended(outcome: &Outcome, took: &str) -> String {
    match outcome {
        Outcome::Done => format!("{} in {took}", text::good("done")),
        Outcome::Skipped => "done already".to_owned(),
        Outcome::Failed { message, .. } => {
            format!("{} after {took}: {}", text::bad("failed"), text::safe_line(message))
        }
        Outcome::Refused { message } => format!("{}: {}", text::bad("refused"), text::safe_line(message)),
        Outcome::Unknown { message } => {
            format!("{} after {took}: {}", text::warn("unknown"), text::safe_line(message))
        }
        Outcome::Blocked { by } => format!("not begun: it needs {}", text::safe_line(by.as_str())),
        Outcome::NotBegun => "not begun".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::recording::*, *};
    use crate::render::fixture;

    #[test]
    fn a_run_reads_as_a_log() {
        let mut desired = fixture::live();
        desired.machines.truncate(1);
        let (pipe, written) = memory();
        let (clock, time) = hand_moved();
        let lines = Lines::new(&fixture::plan_from_nothing(&desired), clock, pipe);
        for (at, event) in events(&desired) {
            time.set(at);
            lines.emit(event);
        }
        for event in failure() {
            lines.emit(event);
        }
        insta::assert_snapshot!(anstream::adapter::strip_str(&written.take()).to_string(), @r"
            0s  10 steps to do
            0s  cluster: make pool `homelab` ...
            0s  images: download image v1.13.9-nocloud-amd64 to local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve1 ...
            1s  cluster: make pool `homelab`: done in 1.2s
            5s  images: download image v1.13.9-nocloud-amd64 to local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve1: after 5.0s, it is not there yet
           37s  images: download image v1.13.9-nocloud-amd64 to local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve1: done in 37s
           37s  cp-1: create VM 2000 on host pve1 ...
           47s  cp-1: create VM 2000 on host pve1: done in 10s
           47s  cp-1: start VM 2000 ...
           50s  cp-1: start VM 2000: done in 2.5s
           50s  cp-1: wait for Talos ...
           55s  cp-1: wait for Talos: after 5.0s, it is not there yet
        1m 27s  cp-1: wait for Talos: done in 37s
        1m 27s  cp-1: apply the machine config ...
        1m 32s  cp-1: apply the machine config: after 5.0s, it is not there yet
        2m 42s  cp-1: apply the machine config: done in 1m 15s
        2m 42s  cp-1: bootstrap etcd on cp-1 ...
        2m 47s  cp-1: bootstrap etcd on cp-1: after 5.0s, it is not there yet
        3m 01s  cp-1: bootstrap etcd on cp-1: done in 18s
        3m 01s  cluster: wait for Kubernetes ...
        3m 01s  cp-1: join etcd ...
        3m 06s  cluster: wait for Kubernetes: after 5.0s, it is not there yet
        3m 06s  cp-1: join etcd: after 5.0s, it is not there yet
        3m 20s  cp-1: join etcd: done in 18s
        3m 51s  cluster: wait for Kubernetes: done in 50s
        3m 51s  cp-1: wait for the node ...
        3m 56s  cp-1: wait for the node: after 5.0s, it is not there yet
        4m 41s  cp-1: wait for the node: done in 50s
        4m 41s  cp-1: create VM 2000 on host pve1 ...
        4m 41s  cp-1: create VM 2000 on host pve1: got timeout; again in 0.2s
        4m 41s  cp-1: create VM 2000 on host pve1 ... (attempt 2)
        4m 41s  cp-1: create VM 2000 on host pve1: failed after 1.4s: Proxmox answered 403: Permission check failed (/storage/local-lvm)
        4m 41s  machine/cp-2/start: refused: VM 2001 is not ours: it has another uuid
        4m 41s  stopped: nothing else is begun
        ");
    }

    #[test]
    fn it_speaks_up_after_five_seconds_while_something_runs() {
        let (pipe, written) = memory();
        let (clock, time) = hand_moved();
        let lines = Lines::new(&fixture::plan_from_nothing(&fixture::live()), clock, pipe);
        time.set(Duration::from_secs(30));
        lines.tick();
        assert_eq!(written.take(), "", "nothing runs");
        lines.emit(events(&fixture::live())[1].1.clone());
        written.take();
        time.set(Duration::from_millis(34_900));
        lines.tick();
        assert_eq!(written.take(), "");
        time.set(Duration::from_secs(35));
        lines.tick();
        insta::assert_snapshot!(written.take(), @"    35s  0 of 34 steps done, 1 running; cluster: make pool `homelab` (since 5s)");
        lines.tick();
        assert_eq!(written.take(), "");
    }

    #[test]
    fn it_speaks_up_while_the_world_is_looked_at() {
        let (pipe, written) = memory();
        let (clock, time) = hand_moved();
        let lines = Lines::new(&fixture::plan_from_nothing(&fixture::live()), clock, pipe);
        lines.emit(Event::Looking { why: "looking whether anything is left".into() });
        for second in [4, 5, 9, 10] {
            time.set(Duration::from_secs(second));
            lines.tick();
        }
        lines.emit(Event::Began { steps: 1 });
        written.take();
        time.set(Duration::from_mins(1));
        lines.tick();
        assert_eq!(written.take(), "", "nobody looks any more");
        lines.emit(Event::Looking { why: "again".into() });
        time.set(Duration::from_secs(65));
        lines.tick();
        assert_eq!(written.take(), " 1m 00s  again\n 1m 05s  again (since 5s)\n");
    }

    #[test]
    fn remote_words_stay_on_one_line_and_steer_nothing() {
        let (pipe, written) = memory();
        let lines = Lines::new(&fixture::plan_from_nothing(&fixture::live()), hand_moved().0, pipe);
        lines.emit(waiting("machine/cp-1/talos", "a\n\u{1b}[2Jb"));
        assert_eq!(written.take(), "     0s  cp-1: wait for Talos: after 1.0s, a␊␛[2Jb\n");
    }
}
