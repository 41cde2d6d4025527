//! How much of a host is taken, as a bar.

use ichor_model::{Size, desired::Role};

use super::{
    canvas::{Anchor, Canvas, Point, Rect},
    machine::{ICON, role_class},
    text::{OVER, STAT},
};
use crate::render::graph::{Host, words};

/// How high a meter is.
pub(super) const HEIGHT: usize = 20;

/// How much of something the machines take of a host.
pub(super) struct Meter {
    icon: &'static str,
    /// By control planes and by workers.
    used: [u64; 2],
    pub(super) capacity: Option<u64>,
    text: String,
}

impl Meter {
    fn total(&self) -> u64 {
        self.used.iter().sum()
    }

    fn is_over(&self) -> bool {
        self.capacity.is_some_and(|capacity| self.total() > capacity)
    }

    pub(super) fn word_width(&self) -> usize {
        STAT.width(&self.text).max(OVER.width(&self.text))
    }

    /// Draws icon, bar and words; bars below one another leave the same room for words.
    pub(super) fn draw(&self, canvas: &mut Canvas, line: Rect, words: usize) {
        let face = if self.is_over() { OVER } else { STAT };
        canvas.icon(self.icon, Point { x: line.x, y: line.y + 3 });
        let left = line.x + ICON + 8;
        let Some(capacity) = self.capacity else {
            return canvas.text(&face, Point { x: left, y: line.y + 13 }, &self.text);
        };
        let width = (line.right() - left).saturating_sub(words + 10);
        self.draw_bar(canvas, Rect { x: left, y: line.y + 6, width, height: 6 }, capacity);
        canvas.anchored_text(&face, Anchor::End, Point { x: line.right(), y: line.y + 13 }, &self.text);
    }

    fn draw_bar(&self, canvas: &mut Canvas, bar: Rect, capacity: u64) {
        canvas.rect("track", bar, 3);
        let [control_planes, _] = self.used;
        // More than there is fills the bar; the words say by how much.
        let capacity = capacity.max(self.total());
        let whole = share(bar.width, self.total(), capacity);
        let first = share(bar.width, control_planes, capacity);
        for (role, width) in [(Role::Worker, whole), (Role::ControlPlane, first)] {
            if width > 0 {
                canvas.rect(role_class(role), Rect { width, ..bar }, 3);
            }
        }
    }
}

/// Returns the part of a width that `used` is of `capacity`: visible when there is any, and never
/// more than the whole.
fn share(width: usize, used: u64, capacity: u64) -> usize {
    let full = u128::try_from(width).unwrap_or(0);
    let part = full * u128::from(used) / u128::from(capacity.max(1));
    let part = usize::try_from(part.min(full)).unwrap_or(width);
    if used > 0 { part.max(6).min(width) } else { 0 }
}

/// Returns the meters of a host: processors, then memory.
pub(super) fn of(host: &Host<'_>) -> Vec<Meter> {
    let cpu = Role::ALL.map(|role| host.cpu_taken(role));
    let memory = Role::ALL.map(|role| host.memory_taken_mib(role));
    let (cpu_text, memory_text) = (words::cpu_taken(host), words::memory_taken(host));
    vec![
        Meter { icon: "cpu", used: cpu, capacity: host.cpu.map(u64::from), text: cpu_text },
        Meter { icon: "memory", used: memory, capacity: host.memory.map(Size::mib), text: memory_text },
    ]
}
