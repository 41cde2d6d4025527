//! Pictures of real runs: what the terminal shows, and the topology that `ichor` draws.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, ensure};

/// Runs `ichor` for every picture of the documentation.
pub fn all(root: &Path) -> Result<Vec<(String, String)>> {
    let plan = run(root, &["plan", "--offline", "-f", "examples/templates"])?;
    let check = run(root, &["check", "-f", "docs/images/mistakes.yaml"])?;
    let topology = run(root, &["plan", "--offline", "-f", "examples/templates", "--graph", "svg"])?;
    Ok(vec![
        ("docs/images/plan.svg".into(), terminal("ichor plan --offline -f examples/templates", &plan)),
        (
            "docs/images/check.svg".into(),
            terminal("ichor check -f mistakes.yaml", &check.replace("docs/images/", "")),
        ),
        ("docs/images/topology.svg".into(), topology),
    ])
}

/// Runs the real binary, as cargo built it for this very check-out.
#[expect(clippy::disallowed_methods, reason = "cargo names itself to what it runs")]
fn run(root: &Path, args: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--package", "ichor", "--"])
        .args(args)
        .current_dir(root)
        .env("CLICOLOR_FORCE", "1")
        .env("COLUMNS", "132")
        .env_remove("NO_COLOR")
        .output()
        .context("running ichor")?;
    let expected = [Some(0), Some(3)];
    ensure!(
        expected.contains(&output.status.code()),
        "ichor {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?)
}

fn terminal(command: &str, output: &str) -> String {
    let screen = format!("\u{1b}[2m$\u{1b}[0m \u{1b}[1m{command}\u{1b}[0m\n{output}");
    anstyle_svg::Term::new().render_svg(screen.trim_end())
}
