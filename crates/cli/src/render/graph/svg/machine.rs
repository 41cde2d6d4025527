//! A machine as a box, while there are few.

use ichor_model::{
    Desired,
    desired::{Late, Machine, Role},
};

use super::{
    canvas::{Anchor, Canvas, Point, Rect},
    text::{ADDRESS, BADGE, Face, NAME, NOTE, STAT},
};
use crate::render::graph::words;

/// Space between a box's side and what is in it.
pub(super) const LEFT: usize = 14;
const TOP: usize = 10;
/// The side of an icon.
pub(super) const ICON: usize = 12;
const NAME_LINE: usize = 17;
const ADDRESS_LINE: usize = 16;
const STATS_LINE: usize = 22;
const BADGE_LINE: usize = 22;
const BADGE_HEIGHT: usize = 18;
/// Wide enough before it for three digits.
const MEMORY_OFFSET: usize = 46;
/// Wide enough before it for `512.5 GiB`.
const DISK_OFFSET: usize = MEMORY_OFFSET + 74;

/// More addresses than this are counted.
const MAX_ADDRESSES: usize = 4;
/// More badges than this are counted.
const MAX_BADGES: usize = 8;

/// Returns the class of what is coloured by role.
pub(super) const fn role_class(role: Role) -> &'static str {
    match role {
        Role::ControlPlane => "cp",
        Role::Worker => "w",
    }
}

/// Returns the class of boxes by role.
pub(super) const fn box_class(role: Role) -> &'static str {
    match role {
        Role::ControlPlane => "cpbox",
        Role::Worker => "wbox",
    }
}

/// A fact beside the usual ones: an icon and a word.
struct Badge {
    icon: &'static str,
    text: String,
}

impl Badge {
    fn new(icon: &'static str, text: String) -> Self {
        Self { icon, text }
    }

    fn width(&self) -> usize {
        let icon = if self.icon.is_empty() { 0 } else { ICON + 4 };
        icon + BADGE.width(&self.text) + 12
    }

    fn fitted(mut self, width: usize) -> Self {
        let frame = self.width() - BADGE.width(&self.text);
        self.text = BADGE.fit(&self.text, width.saturating_sub(frame));
        self
    }

    fn draw(&self, canvas: &mut Canvas, at: Point) {
        let rect = Rect { x: at.x, y: at.y, width: self.width(), height: BADGE_HEIGHT };
        canvas.rect("badgebox", rect, 5);
        let mut start = Point { x: at.x + 6, y: at.y + 13 };
        if !self.icon.is_empty() {
            canvas.icon(self.icon, Point { x: at.x + 6, y: at.y + 3 });
            start.x += ICON + 4;
        }
        canvas.text(&BADGE, start, &self.text);
    }
}

/// One machine, measured for a width.
pub(super) struct MachineBox<'a> {
    pub(super) machine: &'a Machine,
    names: Vec<String>,
    addresses: Vec<(Face, String)>,
    badges: Vec<Vec<Badge>>,
}

impl<'a> MachineBox<'a> {
    /// Lays out a machine in a box of the given width.
    pub(super) fn new(machine: &'a Machine, desired: &Desired, width: usize) -> Self {
        let room = width - LEFT * 2;
        let beside_vmid = room - ICON - 6 - NOTE.width(&vmid(machine)) - 8;
        Self {
            machine,
            names: NAME.wrap(machine.name.as_str(), beside_vmid, room - ICON - 6),
            addresses: address_lines(machine, room),
            badges: badge_lines(badges(machine, desired), room),
        }
    }

    /// Returns how wide a box must be for nothing in it to be cut or broken.
    pub(super) fn natural_width(machine: &Machine) -> usize {
        let name = ICON + 6 + NAME.width(machine.name.as_str()) + 14 + NOTE.width(&vmid(machine));
        let addresses =
            words::addresses(machine).iter().map(|address| ADDRESS.width(&words::late(address))).max();
        let stats = stats(machine).iter().map(|(offset, _, text)| offset + ICON + 4 + STAT.width(text)).max();
        name.max(addresses.unwrap_or(0)).max(stats.unwrap_or(0)) + LEFT * 2
    }

    pub(super) fn height(&self) -> usize {
        TOP * 2
            + self.names.len() * NAME_LINE
            + self.addresses.len() * ADDRESS_LINE
            + STATS_LINE
            + self.badges.len() * BADGE_LINE
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, rect: Rect) {
        canvas.open_group("machine", &words::machine(self.machine));
        canvas.rect(box_class(self.machine.role), rect, 9);
        let left = rect.x + LEFT;
        let y = self.draw_names(canvas, rect);
        let y = self.draw_addresses(canvas, Point { x: left, y });
        draw_stats(canvas, self.machine, Rect { x: left, y, width: rect.width - LEFT * 2, height: 0 });
        self.draw_badges(canvas, Point { x: left, y: y + STATS_LINE });
        canvas.close_group();
    }

    fn draw_names(&self, canvas: &mut Canvas, rect: Rect) -> usize {
        let (left, top) = (rect.x + LEFT, rect.y + TOP);
        let role = role_class(self.machine.role);
        canvas.styled_icon(role, role, Point { x: left, y: top + 2 });
        for (i, line) in self.names.iter().enumerate() {
            canvas.text(&NAME, Point { x: left + ICON + 6, y: top + 12 + i * NAME_LINE }, line);
        }
        let right = Point { x: rect.right() - LEFT, y: top + 12 };
        canvas.anchored_text(&NOTE, Anchor::End, right, &vmid(self.machine));
        top + self.names.len() * NAME_LINE
    }

    fn draw_addresses(&self, canvas: &mut Canvas, at: Point) -> usize {
        for (i, (face, line)) in self.addresses.iter().enumerate() {
            canvas.text(face, Point { x: at.x, y: at.y + 13 + i * ADDRESS_LINE }, line);
        }
        at.y + self.addresses.len() * ADDRESS_LINE
    }

    fn draw_badges(&self, canvas: &mut Canvas, at: Point) {
        for (line, badges) in self.badges.iter().enumerate() {
            let mut x = at.x;
            for badge in badges {
                badge.draw(canvas, Point { x, y: at.y + 5 + line * BADGE_LINE });
                x += badge.width() + 5;
            }
        }
    }
}

fn vmid(machine: &Machine) -> String {
    format!("VM {}", machine.vmid)
}

fn address_lines(machine: &Machine, width: usize) -> Vec<(Face, String)> {
    let addresses = words::addresses(machine);
    let hidden = addresses.len().saturating_sub(MAX_ADDRESSES);
    let more = (hidden > 0).then(|| (NOTE, format!("+ {hidden} more")));
    let shown = addresses.iter().take(MAX_ADDRESSES).map(|address| match address {
        Late::Known(address) => (ADDRESS, ADDRESS.fit_middle(address, width)),
        Late::From(source) => (NOTE, source.to_string()),
    });
    shown.chain(more).collect()
}

/// Returns offset, icon and text of what a machine takes; equal offsets make columns of boxes.
fn stats(machine: &Machine) -> Vec<(usize, &'static str, String)> {
    let mut stats = vec![
        (0, "cpu", machine.cpu.total().to_string()),
        (MEMORY_OFFSET, "memory", words::size(machine.memory)),
    ];
    if let Some(disk) = machine.disks.first() {
        let text = format!("{} {}", words::size(disk.size), words::one_line(&disk.storage));
        stats.push((DISK_OFFSET, "disk", text));
    }
    stats
}

fn draw_stats(canvas: &mut Canvas, machine: &Machine, line: Rect) {
    for (offset, icon, text) in stats(machine) {
        let x = line.x + offset;
        canvas.icon(icon, Point { x, y: line.y + 6 });
        let start = x + ICON + 4;
        let text = STAT.fit(&text, line.right().saturating_sub(start));
        canvas.text(&STAT, Point { x: start, y: line.y + 16 }, &text);
    }
}

/// Returns what is special about a machine: releases of its own, more disks, devices.
fn badges(machine: &Machine, desired: &Desired) -> Vec<Badge> {
    let releases = words::other_releases(machine, desired).into_iter().map(|text| ("release", text));
    let disks = machine.disks.iter().skip(1).map(|disk| ("disk", words::disk(disk)));
    let devices = machine.vm.pci.iter().map(|device| ("pci", words::pci(device)));
    let mut badges: Vec<_> =
        releases.chain(disks).chain(devices).map(|(icon, text)| Badge::new(icon, text)).collect();
    let hidden = badges.len().saturating_sub(MAX_BADGES);
    if hidden > 0 {
        badges.truncate(MAX_BADGES);
        badges.push(Badge::new("", format!("+{hidden}")));
    }
    badges
}

/// Breaks badges into lines of a width.
fn badge_lines(badges: Vec<Badge>, width: usize) -> Vec<Vec<Badge>> {
    let mut lines: Vec<Vec<Badge>> = Vec::new();
    let mut used = usize::MAX;
    for badge in badges.into_iter().map(|badge| badge.fitted(width)) {
        let after = used.saturating_add(5 + badge.width());
        if after > width {
            used = badge.width();
            lines.push(vec![badge]);
        } else if let Some(line) = lines.last_mut() {
            used = after;
            line.push(badge);
        }
    }
    lines
}
