//! Where cards go: in lanes by zone, and in rows when there are many.
//!
//! Everything is first placed in cells of one grid; rows then get the height of their highest
//! card. Places are relative to the grid's own corner until it is drawn.

use std::ops::Range;

use ichor_model::{Desired, MachineName};

use super::{
    canvas::{Canvas, Point, Rect},
    card::{Card, Sheet, Socket},
    text::LABEL,
};
use crate::render::graph::{Host, Topology, words};

/// More hosts than this wrap into rows.
const MIN_ACROSS: usize = 5;
/// Wider pictures are no longer read, however many hosts there are.
const MAX_ACROSS: usize = 12;
/// Space between cards. Lanes share the grid, so it holds the edges of two and what is between.
const GAP: usize = 32;
/// Space between a lane's edge and its cards.
const LANE_PADDING: usize = 10;
/// Space above a lane's cards, for its label.
const LANE_HEAD: usize = 34;

/// A zone's place, in cells; zones side by side have the same rows.
struct Block {
    columns: Range<usize>,
    rows: Range<usize>,
}

/// Puts zones side by side while they fit, and below one another when not.
fn arrange(topology: &Topology<'_>) -> Vec<Block> {
    // Hosts are higher than wide: twice as many columns as rows make the page roughly square.
    let max_across = (topology.hosts().count() * 2).isqrt().clamp(MIN_ACROSS, MAX_ACROSS);
    let mut blocks = Vec::new();
    for zone in &topology.zones {
        add_block(&mut blocks, zone.hosts.len(), max_across);
    }
    blocks
}

fn add_block(blocks: &mut Vec<Block>, hosts: usize, max_across: usize) {
    let rows = hosts.div_ceil(max_across);
    let columns = hosts.div_ceil(rows.max(1));
    let (left, top) = match blocks.last() {
        Some(last) if last.columns.end + columns <= max_across => (last.columns.end, last.rows.start),
        Some(last) => (0, last.rows.end),
        None => (0, 0),
    };
    blocks.push(Block { columns: left..left + columns, rows: top..top + rows });
    let beside = || blocks.iter().filter(|block| block.rows.start == top);
    let bottom = beside().map(|block| block.rows.end).max().unwrap_or(top);
    for block in blocks.iter_mut().filter(|block| block.rows.start == top) {
        block.rows.end = bottom;
    }
}

/// A host's card and its cell.
struct Cell<'a> {
    card: Card<'a>,
    column: usize,
    row: usize,
}

/// A row's upper and lower edge.
struct Row {
    top: usize,
    bottom: usize,
}

/// All hosts of a cluster in their places.
pub(super) struct Grid<'a> {
    cells: Vec<Cell<'a>>,
    rows: Vec<Row>,
    /// Zones with their labels.
    lanes: Vec<(String, Block)>,
    card_width: usize,
    /// How high the heads of all cards are: boxes start on one line.
    head: usize,
    /// Room at both sides for lanes.
    inset: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

impl<'a> Grid<'a> {
    /// Lays out every host of a cluster, to fill a page's width when that takes little.
    pub(super) fn new(topology: &'a Topology<'a>, desired: &Desired, page_width: usize) -> Self {
        let blocks = arrange(topology);
        let across = blocks.iter().map(|block| block.columns.end).max().unwrap_or(0);
        let inset = if topology.has_zones() { LANE_PADDING } else { 0 };
        let around = across.saturating_sub(1) * GAP + inset * 2;
        let sheet = stretched(Sheet::new(topology, across), across, page_width.saturating_sub(around));
        let cells = cells(topology, &blocks, |host| Card::new(host, desired, sheet));
        let head = cells.iter().map(|cell| cell.card.head_height()).max().unwrap_or(0);
        let rows = rows(&cells, &blocks, head, inset);
        Self {
            lanes: lanes(topology, blocks),
            card_width: sheet.card_width(),
            width: across * sheet.card_width() + around,
            height: rows.last().map_or(0, |row| row.bottom + inset),
            cells,
            rows,
            head,
            inset,
        }
    }

    fn lane_rect(&self, block: &Block) -> Rect {
        let x = self.column_x(block.columns.start) - LANE_PADDING;
        let right = self.column_x(block.columns.end) - GAP + LANE_PADDING;
        let y = self.rows[block.rows.start].top - LANE_HEAD;
        let bottom = self.rows[block.rows.end - 1].bottom + LANE_PADDING;
        Rect { x, y, width: right - x, height: bottom - y }
    }

    fn column_x(&self, column: usize) -> usize {
        self.inset + column * (self.card_width + GAP)
    }

    fn card_rect(&self, cell: &Cell<'_>) -> Rect {
        let Row { top, bottom } = self.rows[cell.row];
        Rect { x: self.column_x(cell.column), y: top, width: self.card_width, height: bottom - top }
    }

    /// Draws lanes and cards with the grid's corner at a place.
    pub(super) fn draw(&self, canvas: &mut Canvas, at: Point) {
        for (label, block) in &self.lanes {
            let rect = self.lane_rect(block).moved(at);
            canvas.rect("lane", rect, 18);
            let label = LABEL.fit(label, rect.width - LANE_PADDING * 6);
            canvas.text(&LABEL, Point { x: rect.x + LANE_PADDING + 20, y: rect.y + 22 }, &label);
        }
        for cell in &self.cells {
            cell.card.draw(canvas, self.card_rect(cell).moved(at), self.head);
        }
    }

    /// Returns the ways that wires take from above into each card that has sockets.
    pub(super) fn ways(&self, at: Point, behind: &[&MachineName]) -> Vec<Way> {
        let ways = self.cells.iter().map(|cell| {
            let card = self.card_rect(cell).moved(at);
            Way {
                card,
                gap: (cell.row > 0).then(|| card.x.saturating_sub(GAP / 2)),
                sockets: cell.card.sockets(card, self.head, behind),
            }
        });
        ways.filter(|way| !way.sockets.is_empty()).collect()
    }
}

/// How the endpoint's wires reach a card.
pub(super) struct Way {
    pub(super) card: Rect,
    /// The gap between columns to come down in, past the rows above.
    pub(super) gap: Option<usize>,
    pub(super) sockets: Vec<Socket>,
}

/// Widens cards to fill a width together, unless they would have to grow by more than half.
fn stretched(sheet: Sheet, across: usize, width: usize) -> Sheet {
    let spare = (width / across.max(1)).saturating_sub(sheet.card_width());
    if spare * 2 > sheet.card_width() { sheet } else { sheet.widened(spare) }
}

fn cells<'a>(
    topology: &'a Topology<'a>,
    blocks: &[Block],
    card: impl Fn(&'a Host<'a>) -> Card<'a>,
) -> Vec<Cell<'a>> {
    let mut cells = Vec::new();
    for (zone, Block { columns, rows }) in topology.zones.iter().zip(blocks) {
        for (i, host) in zone.hosts.iter().enumerate() {
            let (column, row) = (columns.start + i % columns.len(), rows.start + i / columns.len());
            cells.push(Cell { card: card(host), column, row });
        }
    }
    cells
}

/// Returns the places of zones that have a name.
fn lanes(topology: &Topology<'_>, blocks: Vec<Block>) -> Vec<(String, Block)> {
    let zones = topology.zones.iter().zip(blocks);
    zones.filter_map(|(zone, block)| Some((words::one_line(zone.name?), block))).collect()
}

/// Stacks the rows: each is as high as its highest card, and lanes have room between them.
fn rows(cells: &[Cell<'_>], blocks: &[Block], head: usize, inset: usize) -> Vec<Row> {
    let count = blocks.iter().map(|block| block.rows.end).max().unwrap_or(0);
    let mut rows: Vec<Row> = Vec::new();
    for i in 0..count {
        let opens_lane = inset > 0 && blocks.iter().any(|block| block.rows.start == i);
        let above = if opens_lane { LANE_HEAD } else { 0 };
        let between = rows.last().map_or(0, |row| row.bottom + if opens_lane { inset * 2 + 4 } else { GAP });
        let body = cells.iter().filter(|cell| cell.row == i).map(|cell| cell.card.body_height()).max();
        let top = between + above;
        rows.push(Row { top, bottom: top + head + body.unwrap_or(0) });
    }
    rows
}
