//! The lab in process: a dialer whose streams are served by the lab, without any port.
//!
//! TLS, HTTP and gRPC are the real ones. With tokio's clock paused, a whole run takes virtual time only.

use std::{io, sync::Arc, time::Duration};

use ichor_net::{Dial, Dialled, Stream};
use ichor_sim::Lab;
use tokio::task::JoinHandle;

use crate::{
    Hall,
    attend::attend,
    proxy::{Found, Routes},
};

/// Most bytes on the way in one direction.
const ON_THE_WAY: usize = 256 * 1024;
/// How long a computer asks for somebody on its network before it gives up.
const UNANSWERED: Duration = Duration::from_secs(3);

/// A lab that is reached in process.
#[derive(Debug)]
pub struct Inside {
    hall: Arc<Hall>,
    routes: Routes,
    clock: JoinHandle<()>,
}

impl Inside {
    /// Opens a lab, which from here on goes as tokio's clock does, beginning at the real time or where its own
    /// time stands, whichever is later. Must be called on a tokio runtime.
    pub fn open(lab: Lab) -> Self {
        let routes = Routes::of(&lab);
        Self::over(Arc::new(Hall::new(lab)), routes)
    }

    /// Leads into a hall. `routes` are names besides the addresses of machines.
    pub fn over(hall: Arc<Hall>, routes: Routes) -> Self {
        let clock = Arc::clone(&hall);
        let clock = tokio::spawn(async move { clock.keep_time().await });
        Self { hall, routes, clock }
    }

    /// Returns the hall, to look into the lab.
    pub const fn hall(&self) -> &Arc<Hall> {
        &self.hall
    }

    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let profile = self.hall.look(|lab| lab.ground.profile);
        tokio::time::sleep(profile.round_trip()).await;
        // The lab may have something to do that is due by now, such as opening this very port.
        match self.hall.visit(|lab| self.routes.find(lab, host, port)) {
            Found::Server(target) => {
                let (near, far) = tokio::io::duplex(ON_THE_WAY);
                tokio::spawn(attend(Arc::clone(&self.hall), far, target));
                Ok(Box::new(near))
            }
            Found::Closed => Err(io::ErrorKind::ConnectionRefused.into()),
            Found::Nobody => {
                tokio::time::sleep(profile.takes(UNANSWERED)).await;
                Err(io::ErrorKind::HostUnreachable.into())
            }
            Found::Unknown => Err(io::Error::new(io::ErrorKind::NotFound, "nobody knows this name")),
        }
    }
}

impl Dial for Inside {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        Box::pin(self.connect(host, port))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.clock.abort();
    }
}
