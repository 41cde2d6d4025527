//! Machines as rows of a list, when there are many.

use ichor_model::desired::{Machine, Role};

use super::{
    canvas::{Anchor, Canvas, Point, Rect},
    machine::{ICON, LEFT, box_class, role_class},
    text::{LABEL, NOTE, ROW, ROW_ADDRESS},
};
use crate::render::graph::words;

const HEAD: usize = 28;
const ROW_HEIGHT: usize = 20;

/// Many machines of one role, a row each; past a limit, only counted.
pub(super) struct List<'a> {
    role: Role,
    pub(super) machines: Vec<&'a Machine>,
    limit: usize,
    columns: usize,
}

impl<'a> List<'a> {
    /// Lists machines in as many columns as a card has; `limit` is how many rows are drawn.
    pub(super) fn new(role: Role, machines: Vec<&'a Machine>, limit: usize, columns: usize) -> Self {
        Self { role, limit: limit.min(machines.len()), machines, columns }
    }

    /// Returns how wide a row must be for nothing in it to be cut.
    pub(super) fn natural_width(machine: &Machine) -> usize {
        let address =
            words::addresses(machine).first().map_or(0, |address| ROW_ADDRESS.width(&words::late(address)));
        ROW.width(machine.name.as_str()) + address + 46
    }

    pub(super) fn height(&self) -> usize {
        HEAD + self.lines() * ROW_HEIGHT + if self.hidden() > 0 { ROW_HEIGHT } else { 0 } + 8
    }

    fn lines(&self) -> usize {
        self.limit.div_ceil(self.columns)
    }

    fn hidden(&self) -> usize {
        self.machines.len() - self.limit
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, rect: Rect) {
        let role = role_class(self.role);
        canvas.rect(box_class(self.role), rect, 9);
        canvas.styled_icon(role, role, Point { x: rect.x + LEFT, y: rect.y + 9 });
        let heading = words::count(self.machines.len(), words::role(self.role));
        canvas.text(&LABEL, Point { x: rect.x + LEFT + ICON + 6, y: rect.y + 19 }, &heading);
        let width = rect.width / self.columns;
        for (i, machine) in self.machines.iter().take(self.limit).enumerate() {
            let (line, column) = (i / self.columns, i % self.columns);
            let (x, y) = (rect.x + column * width, rect.y + HEAD + line * ROW_HEIGHT);
            draw_row(canvas, machine, Rect { x, y, width, height: ROW_HEIGHT });
        }
        self.draw_hidden(canvas, rect);
    }

    fn draw_hidden(&self, canvas: &mut Canvas, rect: Rect) {
        if self.hidden() > 0 {
            let kind = words::role(self.role);
            let text = format!("+ {}", words::count(self.hidden(), &format!("more {kind}")));
            let y = rect.y + HEAD + self.lines() * ROW_HEIGHT + 14;
            canvas.text(&NOTE, Point { x: rect.x + LEFT + ICON + 6, y }, &text);
        }
    }
}

fn draw_row(canvas: &mut Canvas, machine: &Machine, row: Rect) {
    let address = words::addresses(machine).first().map(words::late).unwrap_or_default();
    let left = row.x + LEFT + ICON + 6;
    let right = row.right() - LEFT;
    let address = ROW_ADDRESS.fit_middle(&address, row.width / 2);
    let room = (right - left).saturating_sub(ROW_ADDRESS.width(&address) + 8);
    canvas.open_group("machine", &words::machine(machine));
    canvas.dot(role_class(machine.role), Point { x: row.x + LEFT + 6, y: row.y + 10 }, 2);
    canvas.text(&ROW, Point { x: left, y: row.y + 14 }, &ROW.fit_middle(machine.name.as_str(), room));
    canvas.anchored_text(&ROW_ADDRESS, Anchor::End, Point { x: right, y: row.y + 14 }, &address);
    canvas.close_group();
}
