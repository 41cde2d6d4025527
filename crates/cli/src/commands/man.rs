//! `ichor man`: the manual.

use std::{fs, path::Path};

use crate::{args::Man, exit::Exit, failure::Failure, terminal::Terminal};

/// Prints the main page, or writes all pages to a directory.
pub fn run(args: &Man, terminal: &Terminal) -> Result<Exit, Failure> {
    match &args.directory {
        Some(directory) => write_all(directory, terminal)?,
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(crate::command()).render(&mut page)?;
            terminal.data(page)?;
        }
    }
    Ok(Exit::Done)
}

fn write_all(directory: &Path, terminal: &Terminal) -> Result<(), Failure> {
    let name = directory.display();
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(crate::command(), directory))
        .map_err(|error| {
            Failure::new(Exit::Failed, format!("could not write the manual to `{name}`"))
                .because(error.to_string())
                .hint("name a directory that you may write to")
        })?;
    terminal.tell(&format!("wrote a page for ichor and for each verb to {name}"));
    Ok(())
}
