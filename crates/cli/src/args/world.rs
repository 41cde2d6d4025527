//! Which world a verb acts on.

use std::path::{Path, PathBuf};

use clap::{ValueHint, builder::FalseyValueParser};

/// The world that is asked and changed.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct World {
    /// Rehearses in a simulated datacentre instead of the inventory's Proxmox; nothing real is touched.
    ///
    /// The lab is made to fit the inventory, and is kept from one command to the next.
    #[arg(long, global = true, env = "ICHOR_LAB", hide_env_values = true, value_parser = FalseyValueParser::new())]
    lab: bool,
    /// The file that the lab of `--lab` is kept in, as in `ichor lab serve`. Absent: the cluster's store.
    #[arg(long, global = true, value_name = "FILE", env = "ICHOR_LAB_FILE", hide_env_values = true, value_hint = ValueHint::FilePath, requires = "lab")]
    lab_state: Option<PathBuf>,
}

/// Where a verb acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// On the Proxmox that the inventory names.
    Real,
    /// In a lab that is kept in the cluster's store.
    Lab,
    /// In a lab that is kept in a file.
    LabIn(&'a Path),
}

impl World {
    /// Says where to act.
    pub fn place(&self) -> Place<'_> {
        match (self.lab, self.lab_state.as_deref()) {
            (false, _) => Place::Real,
            (true, None) => Place::Lab,
            (true, Some(file)) => Place::LabIn(file),
        }
    }
}
