//! The topology as an SVG picture.
//!
//! 1. [`grid`] puts every host in a cell, with its zone around it,
//! 2. [`card`] draws a host: what is taken of it ([`meter`]) and its machines, as boxes while they
//!    are few ([`machine`]) and as rows when they are many ([`list`]),
//! 3. [`frame`] adds the heading, the endpoint, the networks and the legend,
//! 4. [`wires`] lead from the endpoint to the control planes behind it.
//!
//! Sizes are whole pixels, and text is measured by [`text`]. All colours are in [`theme`], which
//! follows the reader's choice of light or dark.

mod canvas;
mod card;
mod frame;
mod grid;
mod list;
mod machine;
mod meter;
mod text;
mod theme;
mod wires;

use ichor_model::Desired;

use self::{
    canvas::{Canvas, Point, Rect, escape},
    frame::{Footer, Header, Pill},
    grid::Grid,
};
use super::{Topology, behind_endpoint, words};

/// Space around everything.
const MARGIN: usize = 36;
/// Narrower pages look lost.
const MIN_WIDTH: usize = 640;
/// Space between the heading and the endpoint.
const ABOVE_PILL: usize = 14;
/// Space between the endpoint and the hosts, for the wires.
const WIRE_ROOM: usize = 60;
/// Space between the hosts and the networks.
const ABOVE_FOOTER: usize = 32;

/// Renders the picture.
pub(super) fn render(desired: &Desired, topology: &Topology<'_>) -> String {
    let header = Header::new(desired, topology);
    let pill = Pill::new(desired);
    let footer = Footer::new(desired);
    let frame = MIN_WIDTH.max(header.width()).max(pill.width()).max(footer.width());
    let grid = Grid::new(topology, desired, frame);
    let width = frame.max(grid.width);
    let middle = MARGIN + width / 2;
    let pill_top = MARGIN + Header::HEIGHT + ABOVE_PILL;
    let grid_at = Point { x: middle - grid.width / 2, y: pill_top + Pill::HEIGHT + WIRE_ROOM };
    let footer_at = Point { x: MARGIN, y: grid_at.y + grid.height + ABOVE_FOOTER };
    let page = Rect { x: 0, y: 0, width: width + MARGIN * 2, height: footer_at.y + footer.height() + 14 };

    let mut canvas = Canvas::default();
    open(&mut canvas, desired, topology, page);
    header.draw(&mut canvas, Point { x: MARGIN, y: MARGIN }, width);
    grid.draw(&mut canvas, grid_at);
    let from = pill.draw(&mut canvas, Point { x: middle, y: pill_top });
    wires::draw(&mut canvas, from, grid_at.y, &grid.ways(grid_at, &behind_endpoint(desired)));
    footer.draw(&mut canvas, footer_at, width);
    canvas.raw("</svg>");
    canvas.finish()
}

/// Opens the file: its size, what it says to those who do not see it, its style, its background.
fn open(canvas: &mut Canvas, desired: &Desired, topology: &Topology<'_>, page: Rect) {
    let Rect { width, height, .. } = page;
    canvas.raw(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"ichor\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"ichor-title ichor-desc\">"
    ));
    canvas.raw(&format!("<title id=\"ichor-title\">Cluster {}</title>", desired.cluster.name));
    canvas.raw(&format!("<desc id=\"ichor-desc\">{}</desc>", escape(&description(desired, topology))));
    canvas.raw(&theme::definitions());
    let inside = Rect { x: 1, y: 1, width: width - 2, height: height - 2 };
    canvas.rect("page", inside, 20);
}

fn description(desired: &Desired, topology: &Topology<'_>) -> String {
    let endpoint = &desired.cluster.endpoint;
    format!(
        "Talos {} with Kubernetes {}: {}. The Kubernetes API answers at {} ({}).",
        desired.cluster.talos,
        desired.cluster.kubernetes,
        words::census(desired, topology),
        words::one_line(&endpoint.url()),
        words::endpoint_kind(endpoint)
    )
}
