//! A host as a card: its name, what is taken of it, and its machines.

use ichor_model::{
    Desired, MachineName,
    desired::{Machine, Role},
};

use super::{
    canvas::{Anchor, Canvas, Point, Rect},
    list::List,
    machine::{ICON, MachineBox},
    meter::{self, Meter},
    text::{HOST, NOTE},
};
use crate::render::graph::{Host, LIST_ABOVE, SUMMARISE_ABOVE, Topology, words};

/// Space between a card's edge and what is in it; wires run in the left one.
const PADDING: usize = 20;
/// Space between the columns of boxes in a card.
const GUTTER: usize = 12;
/// Space between boxes, and between sections.
const GAP: usize = 12;
/// Smaller than the wires' way in.
const RADIUS: usize = 10;
const HOST_LINE: usize = 20;

/// Boxes this wide show a full IPv6 address.
const MAX_BOX_WIDTH: usize = 330;
const MIN_BOX_WIDTH: usize = 224;
/// As many boxes side by side as keep the page as wide as five hosts would.
const MAX_BOXES_ACROSS: usize = 5;

/// The measures that all cards of a picture share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sheet {
    box_width: usize,
    columns: usize,
}

impl Sheet {
    /// Measures a picture whose widest row has `across` cards.
    pub(super) fn new(topology: &Topology<'_>, across: usize) -> Self {
        let widths = topology.hosts().flat_map(|host| Role::ALL.map(|role| natural_width(host, role)));
        let box_width = widths.max().unwrap_or(0).clamp(MIN_BOX_WIDTH, MAX_BOX_WIDTH);
        let most = topology.hosts().flat_map(|host| Role::ALL.map(|role| host.of_role(role).count())).max();
        let columns = (MAX_BOXES_ACROSS / across.max(1)).min(most.unwrap_or(0)).clamp(1, 3);
        Self { box_width, columns }
    }

    /// Returns how wide every card is.
    pub(super) const fn card_width(self) -> usize {
        self.content_width() + PADDING * 2
    }

    /// Widens every card by an amount.
    pub(super) const fn widened(self, by: usize) -> Self {
        Self { box_width: self.box_width + by / self.columns, ..self }
    }

    const fn content_width(self) -> usize {
        self.columns * self.box_width + (self.columns - 1) * GUTTER
    }
}

fn natural_width(host: &Host<'_>, role: Role) -> usize {
    let listed = host.of_role(role).count() > LIST_ABOVE;
    let width = if listed { List::natural_width } else { MachineBox::natural_width };
    host.of_role(role).map(width).max().unwrap_or(0)
}

/// The machines of one role on one host.
enum Section<'a> {
    Boxes(Vec<MachineBox<'a>>),
    List(List<'a>),
}

impl<'a> Section<'a> {
    fn new(host: &Host<'a>, role: Role, desired: &Desired, sheet: Sheet) -> Option<Self> {
        let machines: Vec<&Machine> = host.of_role(role).collect();
        if machines.len() > LIST_ABOVE {
            let limit = if host.machines.len() > SUMMARISE_ABOVE { LIST_ABOVE } else { usize::MAX };
            return Some(Self::List(List::new(role, machines, limit, sheet.columns)));
        }
        let boxes = machines.into_iter().map(|machine| MachineBox::new(machine, desired, sheet.box_width));
        let boxes: Vec<_> = boxes.collect();
        (!boxes.is_empty()).then_some(Self::Boxes(boxes))
    }

    /// Returns where each part goes when the section starts at a place.
    fn places(&self, at: Point, sheet: Sheet) -> Vec<Rect> {
        match self {
            Self::Boxes(boxes) => place_boxes(boxes, at, sheet),
            Self::List(list) => {
                vec![Rect { x: at.x, y: at.y, width: sheet.content_width(), height: list.height() }]
            }
        }
    }

    fn draw(&self, canvas: &mut Canvas, places: &[Rect]) {
        match self {
            Self::Boxes(boxes) => boxes.iter().zip(places).for_each(|(b, rect)| b.draw(canvas, *rect)),
            Self::List(list) => list.draw(canvas, places[0]),
        }
    }

    /// Returns which parts wires lead to.
    fn answers(&self, behind: &[&MachineName]) -> Vec<bool> {
        let answers = |machine: &Machine| behind.contains(&&machine.name);
        match self {
            Self::Boxes(boxes) => boxes.iter().map(|b| answers(b.machine)).collect(),
            Self::List(list) => vec![list.machines.iter().any(|machine| answers(machine))],
        }
    }
}

/// Boxes side by side are as high as the highest of their row.
fn place_boxes(boxes: &[MachineBox<'_>], at: Point, sheet: Sheet) -> Vec<Rect> {
    let (mut places, mut y) = (Vec::new(), at.y);
    for row in boxes.chunks(sheet.columns) {
        let height = row.iter().map(MachineBox::height).max().unwrap_or(0);
        let pitch = sheet.box_width + GUTTER;
        places.extend((0..row.len()).map(|i| Rect {
            x: at.x + i * pitch,
            y,
            width: sheet.box_width,
            height,
        }));
        y += height + GAP;
    }
    places
}

/// A host, measured.
pub(super) struct Card<'a> {
    host: &'a Host<'a>,
    names: Vec<String>,
    meters: Vec<Meter>,
    sections: Vec<Section<'a>>,
    sheet: Sheet,
}

impl<'a> Card<'a> {
    pub(super) fn new(host: &'a Host<'a>, desired: &Desired, sheet: Sheet) -> Self {
        let room = sheet.content_width() - ICON - 8;
        let beside_count = room - NOTE.width(&machine_count(host)) - 10;
        let name = words::host(host.name);
        Self {
            host,
            names: HOST.wrap(&name, beside_count, room),
            meters: meter::of(host),
            sections: Role::ALL.iter().filter_map(|role| Section::new(host, *role, desired, sheet)).collect(),
            sheet,
        }
    }

    /// Returns how high the part above the machines is.
    pub(super) fn head_height(&self) -> usize {
        PADDING + self.names.len() * HOST_LINE + self.meter_lines() * meter::HEIGHT + 18
    }

    /// Meters without a bar share a line.
    fn meter_lines(&self) -> usize {
        if self.meters.iter().any(|meter| meter.capacity.is_some()) { self.meters.len() } else { 1 }
    }

    /// Returns how high the card is below its head.
    pub(super) fn body_height(&self) -> usize {
        let places = self.places(Point { x: 0, y: 0 });
        places.last().and_then(|places| places.last()).map_or(26, |rect| rect.bottom()) + PADDING
    }

    fn places(&self, at: Point) -> Vec<Vec<Rect>> {
        let mut y = at.y;
        let mut all = Vec::new();
        for section in &self.sections {
            let places = section.places(Point { x: at.x, y }, self.sheet);
            y = places.last().map_or(y, |rect| rect.bottom() + GAP);
            all.push(places);
        }
        all
    }

    /// Draws the card; `head` is how high the heads in this picture are.
    pub(super) fn draw(&self, canvas: &mut Canvas, rect: Rect, head: usize) {
        if self.host.name.is_some() {
            canvas.rect("shadow", Rect { y: rect.y + 3, ..rect }, RADIUS);
            canvas.rect("card", rect, RADIUS);
        } else {
            canvas.rect("card live", rect, RADIUS);
        }
        self.draw_name(canvas, rect);
        self.draw_meters(canvas, rect);
        let origin = Point { x: rect.x + PADDING, y: rect.y + head };
        for (section, places) in self.sections.iter().zip(self.places(origin)) {
            section.draw(canvas, &places);
        }
        if self.sections.is_empty() {
            let y = origin.y + 14;
            canvas.text(&NOTE, Point { x: origin.x, y }, "no machine of this cluster");
        }
    }

    fn draw_name(&self, canvas: &mut Canvas, rect: Rect) {
        let (left, top) = (rect.x + PADDING, rect.y + PADDING);
        canvas.icon("host", Point { x: left, y: top + 2 });
        for (i, line) in self.names.iter().enumerate() {
            canvas.text(&HOST, Point { x: left + ICON + 8, y: top + 13 + i * HOST_LINE }, line);
        }
        let right = Point { x: rect.right() - PADDING, y: top + 12 };
        canvas.anchored_text(&NOTE, Anchor::End, right, &machine_count(self.host));
    }

    fn draw_meters(&self, canvas: &mut Canvas, rect: Rect) {
        let width = self.sheet.content_width();
        let y = rect.y + PADDING + self.names.len() * HOST_LINE + 4;
        let together = self.meter_lines() < self.meters.len();
        let words = self.meters.iter().map(Meter::word_width).max().unwrap_or(0);
        let mut line = Rect { x: rect.x + PADDING, y, width, height: meter::HEIGHT };
        for meter in &self.meters {
            meter.draw(canvas, line, words);
            if together {
                line.x += ICON + 20 + words;
            } else {
                line.y += meter::HEIGHT;
            }
        }
    }

    /// Returns where the endpoint's wires enter: boxes in the first column from the left, others
    /// from above.
    pub(super) fn sockets(&self, rect: Rect, head: usize, behind: &[&MachineName]) -> Vec<Socket> {
        let origin = Point { x: rect.x + PADDING, y: rect.y + head };
        let parts = self.sections.iter().zip(self.places(origin));
        parts
            .flat_map(|(section, places)| section.answers(behind).into_iter().zip(places))
            .filter_map(|(answers, place)| answers.then_some(place))
            .map(|place| if place.x == origin.x { Socket::Left(place) } else { Socket::Top(place) })
            .collect()
    }
}

/// Where a wire enters a box.
pub(super) enum Socket {
    /// In the middle of its left side.
    Left(Rect),
    /// In the middle of its upper side.
    Top(Rect),
}

fn machine_count(host: &Host<'_>) -> String {
    words::count(host.machines.len(), "machine")
}
