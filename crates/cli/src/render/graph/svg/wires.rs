//! The wires between the endpoint and the control planes that answer behind it.

use super::{
    canvas::{Canvas, Point, Rect},
    card::Socket,
    grid::Way,
};

/// How far inside a card its trunk runs, left of its boxes.
const TRUNK_INSET: usize = 10;
/// The radius of bends.
const BEND: usize = 6;
/// How far above a box a branch turns into it from above.
const ABOVE_BOX: usize = 8;

/// Draws a curve into each card, down its left edge, with a branch to every socket.
pub(super) fn draw(canvas: &mut Canvas, from: Point, rows_top: usize, ways: &[Way]) {
    for way in ways {
        let trunk = way.card.x + TRUNK_INSET;
        let mut d = approach(from, rows_top, way, trunk);
        let last = way.sockets.iter().map(branch_y).max().unwrap_or(way.card.y);
        d.push_str(&format!("V{}", last - BEND));
        way.sockets.iter().for_each(|socket| d.push_str(&branch(socket, trunk)));
        canvas.path("wire", &d);
        way.sockets.iter().for_each(|socket| canvas.dot("plug", plug(socket), 3));
    }
}

/// Returns the curve from the endpoint to the top of a card: at once to the first row, and through
/// a gap between columns to rows below it.
fn approach(from: Point, rows_top: usize, way: &Way, trunk: usize) -> String {
    let top = way.card.y;
    let down = curve(from, Point { x: way.gap.unwrap_or(trunk), y: rows_top });
    match way.gap {
        None => down,
        Some(gap) => {
            let turn = top - 16;
            format!("{down}V{turn}C{gap} {} {trunk} {} {trunk} {top}", turn + 10, top - 10)
        }
    }
}

fn curve(from: Point, to: Point) -> String {
    let half = usize::midpoint(from.y, to.y);
    format!("M{} {}C{} {half} {} {half} {} {}", from.x, from.y, from.x, to.x, to.x, to.y)
}

/// Returns where a branch leaves the trunk.
fn branch_y(socket: &Socket) -> usize {
    match socket {
        Socket::Left(place) => left_entry(*place).y,
        Socket::Top(place) => place.y - ABOVE_BOX,
    }
}

fn branch(socket: &Socket, trunk: usize) -> String {
    let y = branch_y(socket);
    let bend = format!("M{trunk} {}Q{trunk} {y} {} {y}", y - BEND, trunk + BEND);
    let Point { x, y: entry } = plug(socket);
    match socket {
        Socket::Left(_) => format!("{bend}H{x}"),
        Socket::Top(_) => format!("{bend}H{}Q{x} {y} {x} {entry}", x - BEND),
    }
}

/// Returns where a wire ends.
fn plug(socket: &Socket) -> Point {
    match socket {
        Socket::Left(place) => left_entry(*place),
        Socket::Top(place) => Point { x: place.middle().x, y: place.y },
    }
}

/// Beside the first line of a box, however high it is.
fn left_entry(place: Rect) -> Point {
    Point { x: place.x, y: place.y + 18 }
}
