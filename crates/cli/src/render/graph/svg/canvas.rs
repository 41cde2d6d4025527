//! The elements of an SVG file, written one after the other.

use super::text::Face;

/// A place on the page, in pixels from its top left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) x: usize,
    pub(super) y: usize,
}

/// A rectangle on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

impl Rect {
    pub(super) const fn right(self) -> usize {
        self.x + self.width
    }

    pub(super) const fn bottom(self) -> usize {
        self.y + self.height
    }

    /// Returns the rectangle as far from another corner.
    pub(super) const fn moved(self, by: Point) -> Self {
        Self { x: self.x + by.x, y: self.y + by.y, ..self }
    }

    pub(super) const fn middle(self) -> Point {
        Point { x: self.x + self.width / 2, y: self.y + self.height / 2 }
    }
}

/// Which part of a line of text its place names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn attribute(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::Middle => " text-anchor=\"middle\"",
            Self::End => " text-anchor=\"end\"",
        }
    }
}

fn use_of_icon(class: &str, icon: &str) -> String {
    format!("<use class=\"{class}\" href=\"#ichor-{icon}\"")
}

/// An SVG file being written.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    out: String,
}

impl Canvas {
    /// Adds markup as it is.
    pub(super) fn raw(&mut self, markup: &str) {
        self.out.push_str(markup);
        self.out.push('\n');
    }

    /// Adds an element that holds nothing but text.
    pub(super) fn element(&mut self, open: &str, text: &str, close: &str) {
        self.raw(&format!("{open}{}{close}", escape(text)));
    }

    /// Opens a group that names itself to those who point at it or have it read out.
    pub(super) fn open_group(&mut self, class: &str, title: &str) {
        self.element(&format!("<g class=\"{class}\"><title>"), title, "</title>");
    }

    /// Closes the group opened last.
    pub(super) fn close_group(&mut self) {
        self.raw("</g>");
    }

    /// Draws a rectangle with round corners.
    pub(super) fn rect(&mut self, class: &str, rect: Rect, radius: usize) {
        let Rect { x, y, width, height } = rect;
        self.raw(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\"/>"
        ));
    }

    /// Draws a dot.
    pub(super) fn dot(&mut self, class: &str, at: Point, radius: usize) {
        let Point { x, y } = at;
        self.raw(&format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>"));
    }

    /// Draws a path.
    pub(super) fn path(&mut self, class: &str, d: &str) {
        self.raw(&format!("<path class=\"{class}\" d=\"{d}\"/>"));
    }

    /// Draws one of the theme's icons; the place is its top left corner.
    pub(super) fn icon(&mut self, icon: &str, at: Point) {
        self.styled_icon("icon", icon, at);
    }

    /// Draws one of the theme's icons in a colour of its own.
    pub(super) fn styled_icon(&mut self, class: &str, icon: &str, at: Point) {
        let Point { x, y } = at;
        self.raw(&format!("{} x=\"{x}\" y=\"{y}\"/>", use_of_icon(class, icon)));
    }

    /// Whether an icon was drawn.
    pub(super) fn has_icon(&self, class: &str, icon: &str) -> bool {
        self.out.contains(&use_of_icon(class, icon))
    }

    /// Writes a line of text from a place on its baseline.
    pub(super) fn text(&mut self, face: &Face, at: Point, text: &str) {
        self.anchored_text(face, Anchor::Start, at, text);
    }

    /// Writes a line of text that starts, is centred or ends at a place on its baseline.
    pub(super) fn anchored_text(&mut self, face: &Face, anchor: Anchor, at: Point, text: &str) {
        let (class, Point { x, y }, anchor) = (face.class, at, anchor.attribute());
        self.element(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>"), text, "</text>");
    }

    /// Returns the file.
    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// Escapes text for an XML element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}
