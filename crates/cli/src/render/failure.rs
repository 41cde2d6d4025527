//! Failures as text, and as programs read them.

use serde_json::{Value, json};

use super::text;
use crate::failure::Failure;

/// Returns a failure for programs: as a finding that no place in an inventory belongs to.
pub fn document(failure: &Failure) -> Value {
    let finding = json!({
        "severity": "error",
        "message": failure.message,
        "notes": failure.reasons,
        "remedy": failure.hint,
    });
    let exit = failure.exit;
    json!({"exit_code": exit.code(), "exit": exit.meaning(), "findings": [finding]})
}

/// Returns a failure as people see it: what, why, and what to do next.
pub fn text(failure: &Failure) -> String {
    let mut lines = vec![format!("{}: {}", text::bad("error"), text::safe_line(&failure.message))];
    lines.extend(failure.reasons.iter().map(|reason| format!("  {}", text::safe_line(reason))));
    if let Some(hint) = &failure.hint {
        lines.push(format!("{}: {}", text::hint("hint"), text::safe_lines(hint)));
    }
    lines.join("\n")
}
