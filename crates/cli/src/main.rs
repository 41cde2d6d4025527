//! The program `ichor`: hands its arguments to the library and its outcome to the shell.

use std::process::ExitCode;

#[expect(clippy::disallowed_methods, reason = "arguments enter here")]
fn main() -> ExitCode {
    ichor::run(std::env::args_os()).into()
}
