//! What stands around the hosts: the heading, the endpoint, the networks and the legend.

use ichor_model::Desired;

use super::{
    canvas::{Anchor, Canvas, Point, Rect},
    text::{ADDRESS, CHIP, LABEL, NOTE, SUBTITLE, TITLE, URL},
};
use crate::render::graph::{Topology, words};

/// Longer environments are cut.
const MAX_CHIP: usize = 260;
/// Longer endpoints and networks are cut.
const MAX_URL: usize = 640;
const MAX_NETWORK: usize = 330;
/// More networks than this of one kind are counted.
const MAX_NETWORKS: usize = 4;
const NETWORK_LINE: usize = 17;
const NETWORK_GAP: usize = 36;

const CHIP_GAP: usize = 8;

/// The cluster's name, what it is made of, its releases and its environment.
pub(super) struct Header {
    name: String,
    census: String,
    /// From right to left, with the class of their boxes.
    chips: Vec<(&'static str, String)>,
}

impl Header {
    pub(super) const HEIGHT: usize = 70;

    pub(super) fn new(desired: &Desired, topology: &Topology<'_>) -> Self {
        let cluster = &desired.cluster;
        let environment = cluster.environment.as_deref().map(words::one_line);
        let environment = environment.filter(|text| !text.is_empty()).map(|text| CHIP.fit(&text, MAX_CHIP));
        let releases = [format!("Kubernetes {}", cluster.kubernetes), format!("Talos {}", cluster.talos)];
        Self {
            name: cluster.name.to_string(),
            census: words::census(desired, topology),
            chips: environment
                .map(|text| ("chipbox gilt", text))
                .into_iter()
                .chain(releases.map(|text| ("chipbox", text)))
                .collect(),
        }
    }

    pub(super) fn width(&self) -> usize {
        let chips: usize = self.chips.iter().map(|(_, text)| CHIP_GAP + chip_width(text)).sum();
        (TITLE.width(&self.name) + 24 + chips).max(SUBTITLE.width(&self.census))
    }

    /// Draws the name from the left and the chips from the right.
    pub(super) fn draw(&self, canvas: &mut Canvas, at: Point, width: usize) {
        canvas.text(&TITLE, Point { x: at.x, y: at.y + 28 }, &self.name);
        canvas.text(&SUBTITLE, Point { x: at.x, y: at.y + 54 }, &self.census);
        let mut right = at.x + width;
        for (class, text) in &self.chips {
            let width = chip_width(text);
            let rect = Rect { x: right - width, y: at.y + 6, width, height: 24 };
            canvas.rect(class, rect, 12);
            let middle = Point { x: rect.middle().x, y: rect.y + 16 };
            canvas.anchored_text(&CHIP, Anchor::Middle, middle, text);
            right = rect.x.saturating_sub(CHIP_GAP);
        }
    }
}

fn chip_width(text: &str) -> usize {
    CHIP.width(text) + 24
}

/// The endpoint.
pub(super) struct Pill {
    url: String,
    kind: String,
}

impl Pill {
    pub(super) const HEIGHT: usize = 54;

    pub(super) fn new(desired: &Desired) -> Self {
        let endpoint = &desired.cluster.endpoint;
        Self {
            url: URL.fit_middle(&words::one_line(&endpoint.url()), MAX_URL),
            kind: words::endpoint_kind(endpoint),
        }
    }

    pub(super) fn width(&self) -> usize {
        URL.width(&self.url).max(NOTE.width(&self.kind)) + 80
    }

    /// Draws the pill around a middle and returns where its wires begin.
    pub(super) fn draw(&self, canvas: &mut Canvas, top: Point) -> Point {
        let width = self.width();
        let rect = Rect { x: top.x - width / 2, y: top.y, width, height: Self::HEIGHT };
        canvas.rect("pill", rect, Self::HEIGHT / 2);
        canvas.raw(&format!("<g transform=\"translate({} {}) scale(1.5)\">", rect.x + 20, rect.y + 18));
        canvas.styled_icon("gold", "endpoint", Point { x: 0, y: 0 });
        canvas.close_group();
        let left = rect.x + 50;
        canvas.text(&URL, Point { x: left, y: rect.y + 24 }, &self.url);
        canvas.text(&NOTE, Point { x: left, y: rect.y + 41 }, &self.kind);
        Point { x: top.x, y: rect.bottom() }
    }
}

/// A kind of network and the ranges it has.
struct Networks {
    title: &'static str,
    lines: Vec<String>,
}

impl Networks {
    fn new(title: &'static str, ranges: &[String]) -> Self {
        let mut lines: Vec<_> =
            ranges.iter().take(MAX_NETWORKS).map(|text| ADDRESS.fit(text, MAX_NETWORK)).collect();
        if ranges.len() > MAX_NETWORKS {
            lines.push(format!("+ {} more", ranges.len() - MAX_NETWORKS));
        }
        if lines.is_empty() {
            lines.push("none".into());
        }
        Self { title, lines }
    }

    fn width(&self) -> usize {
        let lines = self.lines.iter().map(|line| ADDRESS.width(line)).max().unwrap_or(0);
        lines.max(LABEL.width(self.title) * 21 / 20)
    }

    fn draw(&self, canvas: &mut Canvas, at: Point) {
        canvas.text(&LABEL, Point { x: at.x, y: at.y + 26 }, self.title);
        for (i, line) in self.lines.iter().enumerate() {
            canvas.text(&ADDRESS, Point { x: at.x, y: at.y + 46 + i * NETWORK_LINE }, line);
        }
    }
}

/// The networks of the cluster, and what the colours mean.
pub(super) struct Footer {
    networks: Vec<Networks>,
}

impl Footer {
    const LEGEND: usize = 44;
    const PADDING: usize = 20;

    pub(super) fn new(desired: &Desired) -> Self {
        let network = &desired.network;
        let texts = |ranges: &[_]| ranges.iter().map(ToString::to_string).collect::<Vec<String>>();
        Self {
            networks: vec![
                Networks::new("Machines", &texts(&network.cidr)),
                Networks::new("Pods", &texts(&network.pods)),
                Networks::new("Services", &texts(&network.services)),
                Networks::new("Plugged into", &words::bridges(desired)),
            ],
        }
    }

    pub(super) fn width(&self) -> usize {
        self.natural_width().max(legend_width())
    }

    fn natural_width(&self) -> usize {
        let widths: usize = self.networks.iter().map(Networks::width).sum();
        widths + (self.networks.len() - 1) * NETWORK_GAP + Self::PADDING * 2
    }

    pub(super) fn height(&self) -> usize {
        self.strip_height() + Self::LEGEND
    }

    fn strip_height(&self) -> usize {
        let lines = self.networks.iter().map(|networks| networks.lines.len()).max().unwrap_or(1);
        40 + lines * NETWORK_LINE + 8
    }

    /// Draws the strip of networks as wide as the page, and the legend below it.
    pub(super) fn draw(&self, canvas: &mut Canvas, at: Point, width: usize) {
        let strip = Rect { x: at.x, y: at.y, width, height: self.strip_height() };
        canvas.rect("shadow", Rect { y: strip.y + 3, ..strip }, 14);
        canvas.rect("card", strip, 14);
        let spare = width.saturating_sub(self.natural_width()) / self.networks.len();
        let mut x = strip.x + Self::PADDING;
        for (i, networks) in self.networks.iter().enumerate() {
            if i > 0 {
                let rule = format!("M{} {}V{}", x - 18, strip.y + 16, strip.bottom() - 16);
                canvas.path("rule", &rule);
            }
            networks.draw(canvas, Point { x, y: strip.y });
            x += networks.width() + NETWORK_GAP + spare;
        }
        draw_legend(canvas, Point { x: at.x, y: strip.bottom() + 22 });
    }
}

/// Class, icon and meaning of what the picture draws.
const LEGEND: [(&str, &str, &str); 7] = [
    ("cp", "cp", "control plane"),
    ("w", "w", "worker"),
    ("gold", "endpoint", "endpoint"),
    ("icon", "cpu", "vCPU"),
    ("icon", "memory", "memory"),
    ("icon", "disk", "disk"),
    ("icon", "pci", "PCI device"),
];
const LEGEND_GAP: usize = 22;

fn legend_width() -> usize {
    LEGEND.iter().map(|(_, _, text)| 18 + NOTE.width(text) + LEGEND_GAP).sum()
}

/// Explains what the picture has, which is drawn by now.
fn draw_legend(canvas: &mut Canvas, at: Point) {
    let mut x = at.x + 4;
    let drawn: Vec<_> = LEGEND.into_iter().filter(|(class, icon, _)| canvas.has_icon(class, icon)).collect();
    for (class, icon, text) in drawn {
        canvas.styled_icon(class, icon, Point { x, y: at.y });
        canvas.text(&NOTE, Point { x: x + 18, y: at.y + 10 }, text);
        x += 18 + NOTE.width(text) + LEGEND_GAP;
    }
}
