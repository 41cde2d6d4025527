//! Colours, fonts and icons: the style sheet that opens every picture.

use super::text::{FACES, Face};

/// Named fonts before the generic one: what `system-ui` picks on a bare Linux is far wider.
const SANS: &str = "-apple-system,BlinkMacSystemFont,'Segoe UI',Roboto,Inter,'Noto Sans','Helvetica Neue',\
                    Arial,sans-serif";
const MONO: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace";

/// Class, look on light pages, look on dark pages.
///
/// Plain colours on plain classes, no variables: viewers outside browsers know no more.
const COLOURS: &[(&str, &str, &str)] = &[
    ("page", "fill:#f6f7fb;stroke:#e1e5ee", "fill:#0e1220;stroke:#232a3d"),
    ("lane", "fill:#eceff6;stroke:#dce1ec", "fill:#141a2b;stroke:#252d44"),
    ("shadow", "fill:#1b2540;fill-opacity:.07", "fill:#000;fill-opacity:.35"),
    ("card", "fill:#fff;stroke:#dde2ec", "fill:#1a2134;stroke:#2c3550"),
    ("live", "stroke:#aab4ca", "stroke:#56617f"),
    ("rule", "stroke:#e6e9f1", "stroke:#2a334b"),
    ("title", "fill:#141b2d", "fill:#f2f4fa"),
    ("host", "fill:#1a2236", "fill:#e9ecf5"),
    ("name", "fill:#1a2236", "fill:#eef1f9"),
    ("row", "fill:#263048", "fill:#d8deec"),
    ("url", "fill:#5c3b00", "fill:#ffdf9e"),
    ("sub", "fill:#56607a", "fill:#a3adc6"),
    ("label", "fill:#6b7590", "fill:#95a0bb"),
    ("note", "fill:#6b7590", "fill:#95a0bb"),
    ("stat", "fill:#4a546d", "fill:#aeb8d0"),
    ("addr", "fill:#35405a", "fill:#c5cde0"),
    ("rowaddr", "fill:#6b7590", "fill:#95a0bb"),
    ("badge", "fill:#3d4760", "fill:#c5cde0"),
    ("over", "fill:#b45309", "fill:#fbbf24"),
    ("chip", "fill:#4a546d", "fill:#c5cde0"),
    ("chipbox", "fill:#fff;stroke:#dde2ec", "fill:#1a2134;stroke:#2c3550"),
    ("gilt", "fill:#fff1d2;stroke:#f0c871", "fill:#33290f;stroke:#6d5617"),
    ("pill", "fill:#fff8e8;stroke:#e3ac3a", "fill:#2b2412;stroke:#b98a2a"),
    ("wire", "stroke:#dfa230", "stroke:#b98a2a"),
    ("plug", "fill:#dfa230", "fill:#d3a03a"),
    ("gold", "stroke:#b67a08", "stroke:#e8b84d"),
    ("icon", "stroke:#7b86a1", "stroke:#8692b0"),
    ("track", "fill:#e7eaf2", "fill:#2a334b"),
    ("badgebox", "fill:#fff;stroke:#d5dbe8", "fill:#212a40;stroke:#38435f"),
    ("cpbox", "fill:#f1f0ff;stroke:#c9c5fb", "fill:#25244a;stroke:#4a47a3"),
    ("cp", "fill:#5b52e6", "fill:#8f8bff"),
    ("wbox", "fill:#e9f8f4;stroke:#a9e0d3", "fill:#12312f;stroke:#1f6a62"),
    ("w", "fill:#0e9384", "fill:#2fc9b4"),
];

/// Icons as single paths in a square of 12 by 12.
const ICONS: &[(&str, &str)] = &[
    ("cp", "M6 .6 10.8 3.3V8.7L6 11.4 1.2 8.7V3.3z"),
    (
        "w",
        "M3 1.2H9A1.8 1.8 0 0 1 10.8 3V9A1.8 1.8 0 0 1 9 10.8H3A1.8 1.8 0 0 1 1.2 9V3A1.8 1.8 0 0 1 3 1.2z",
    ),
    ("cpu", "M3 3H9V9H3zM4.5 1V3M7.5 1V3M4.5 9V11M7.5 9V11M1 4.5H3M1 7.5H3M9 4.5H11M9 7.5H11"),
    ("memory", "M1 3.5H11V8.5H1zM3.3 5.2V6.8M6 5.2V6.8M8.7 5.2V6.8M3 8.5V10M6 8.5V10M9 8.5V10"),
    (
        "disk",
        "M1.8 3A4.2 1.8 0 0 0 10.2 3 4.2 1.8 0 0 0 1.8 3V9A4.2 1.8 0 0 0 10.2 9V3M1.8 6A4.2 1.8 0 0 0 10.2 6",
    ),
    ("pci", "M1 2V10M1 3.5H11V8.5H1M4 8.5V10.2H8V8.5M5 6A1 1 0 1 0 7 6 1 1 0 1 0 5 6"),
    ("release", "M6 10.8V1.8M2.4 5.2 6 1.6 9.6 5.2"),
    ("host", "M1.5 1.5H10.5V5.2H1.5zM1.5 6.8H10.5V10.5H1.5zM3.5 3.4H4M3.5 8.6H4"),
    ("endpoint", "M6 1A5 5 0 1 0 6 11 5 5 0 1 0 6 1zM1 6H11M6 1C3 4 3 8 6 11 9 8 9 4 6 1"),
];

/// Returns the style sheet and the icons.
pub(super) fn definitions() -> String {
    let dark = colours(|(_, _, dark)| *dark);
    format!(
        "<style>\n{}{}{}@media (prefers-color-scheme:dark){{\n{dark}}}\n</style>\n<defs>\n{}</defs>",
        shapes(),
        faces(),
        colours(|(_, light, _)| *light),
        icons()
    )
}

fn shapes() -> String {
    format!(
        ".ichor text{{font-family:{SANS}}}\n\
         .ichor .wire{{fill:none;stroke-width:1.5}}\n\
         .ichor .icon,.ichor .gold{{fill:none;stroke-width:1.1;stroke-linecap:round;stroke-linejoin:round}}\n\
         .ichor .label{{letter-spacing:.04em}}\n\
         .ichor .live{{stroke-dasharray:5 4}}\n"
    )
}

fn faces() -> String {
    FACES.iter().map(face).collect()
}

fn face(face: &Face) -> String {
    let Face { class, size, weight, mono } = face;
    let family = if *mono { format!(";font-family:{MONO}") } else { String::new() };
    // `text.class` weighs more than the rule that sets the family of all text.
    format!(".ichor text.{class}{{font-size:{size}px;font-weight:{weight}{family}}}\n")
}

fn colours(look: impl Fn(&(&'static str, &'static str, &'static str)) -> &'static str) -> String {
    COLOURS.iter().map(|row| format!(".ichor .{}{{{}}}\n", row.0, look(row))).collect()
}

fn icons() -> String {
    ICONS.iter().map(|(name, d)| format!("<path id=\"ichor-{name}\" d=\"{d}\"/>\n")).collect()
}
