//! Failures as text.

use super::text;
use crate::failure::Failure;

/// Returns a failure as people see it: what, why, and what to do next.
pub fn text(failure: &Failure) -> String {
    let mut lines = vec![format!("{}: {}", text::bad("error"), text::safe_line(&failure.message))];
    lines.extend(failure.reasons.iter().map(|reason| format!("  {}", text::safe_line(reason))));
    if let Some(hint) = &failure.hint {
        lines.push(format!("{}: {}", text::hint("hint"), text::safe_lines(hint)));
    }
    lines.join("\n")
}
