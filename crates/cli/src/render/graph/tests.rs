//! Properties of both pictures, and a snapshot of each.

use std::collections::BTreeSet;

use super::{
    sample::{self, Scene},
    *,
};

/// Mermaid's own limit, which no chart can raise.
const MERMAID_MAX_TEXT_SIZE: usize = 50_000;

fn draw_svg(scene: &Scene) -> String {
    svg(&scene.desired, &scene.hosts)
}

fn draw_mermaid(scene: &Scene) -> String {
    mermaid(&scene.desired, &scene.hosts)
}

#[test]
fn mermaid_of_a_small_cluster() {
    insta::assert_snapshot!(draw_mermaid(&sample::two_zones()));
}

#[test]
fn svg_of_a_small_cluster() {
    insta::assert_snapshot!(draw_svg(&sample::single()));
}

#[test]
fn same_cluster_same_picture() {
    for (scene, again) in sample::scenes().iter().zip(&sample::scenes()) {
        assert_eq!(draw_svg(scene), draw_svg(again), "{}", scene.name);
        assert_eq!(draw_mermaid(scene), draw_mermaid(again), "{}", scene.name);
    }
}

#[test]
fn every_machine_is_named_unless_its_host_is_crowded() {
    for scene in sample::scenes() {
        let (svg, mermaid) = (draw_svg(&scene), draw_mermaid(&scene));
        let topology = Topology::new(&scene.desired, &scene.hosts);
        let roomy = topology.hosts().filter(|host| host.machines.len() <= SUMMARISE_ABOVE);
        for machine in roomy.flat_map(|host| &host.machines) {
            assert!(svg.contains(&format!("<title>{},", machine.name)), "{}: {}", scene.name, machine.name);
            assert!(mermaid.contains(machine.name.as_str()), "{}: {}", scene.name, machine.name);
        }
    }
}

#[test]
fn crowded_hosts_count_what_they_do_not_name() {
    let scene = sample::crowded_hosts();
    let (svg, mermaid) = (draw_svg(&scene), draw_mermaid(&scene));
    assert!(svg.contains(">+ 48 more workers<") && svg.contains(">+ 1 more control plane<"));
    assert!(mermaid.contains("and\u{a0}48\u{a0}more\u{a0}workers"));
    for (name, drawn) in [("worker-12", true), ("worker-13", false), ("worker-61", true)] {
        assert_eq!(svg.contains(&format!(">{name}<")), drawn, "{name}");
    }
}

#[test]
fn a_thousand_machines_stay_small() {
    let scene = sample::thousand_machines();
    assert!(draw_svg(&scene).len() < 500_000);
    assert!(draw_mermaid(&scene).len() < MERMAID_MAX_TEXT_SIZE);
}

#[test]
fn mermaid_draws_less_of_each_machine_when_there_are_too_many() {
    for (machines, sign) in [(250, "VM\u{a0}"), (600, "<br/>m-600-"), (3000, "50\u{a0}workers<br/>m-")] {
        let chart = draw_mermaid(&sample::spread(machines, 60));
        assert!(chart.contains(sign), "{machines}: {}", chart.len());
        assert!(chart.encode_utf16().count() < MERMAID_MAX_TEXT_SIZE, "{machines}: {}", chart.len());
    }
}

#[test]
fn svg_is_well_formed_and_stays_on_its_page() {
    for scene in sample::scenes() {
        let svg = draw_svg(&scene);
        check_tags(&svg).unwrap_or_else(|problem| panic!("{}: {problem}", scene.name));
        check_bounds(&svg).unwrap_or_else(|problem| panic!("{}: {problem}", scene.name));
    }
}

#[test]
fn hostile_text_is_only_text() {
    let svg = draw_svg(&sample::hostile_text());
    assert_eq!(svg.matches("</svg>").count(), 1);
    assert!(!svg.contains("<b>") && !svg.contains(['\u{7}', '\u{202e}']));
    assert!(svg.contains("&lt;b&gt;&quot;x&quot;&amp;amp;]]&gt;"));

    let mermaid = draw_mermaid(&sample::hostile_text());
    assert!(!mermaid.contains("%%") && !mermaid.contains('`') && !mermaid.contains("<b>"));
    for line in mermaid.lines() {
        assert!(matches!(line.matches('"').count(), 0 | 2), "{line}");
        assert_eq!(line.matches('<').count(), line.matches("<br/>").count(), "{line}");
    }
}

#[test]
fn wires_lead_to_what_answers_behind_the_endpoint() {
    for (scene, expected) in
        [(sample::single(), 1), (sample::three_hosts(), 3), (sample::live(), 1), (sample::crowded_hosts(), 1)]
    {
        assert_eq!(draw_svg(&scene).matches("class=\"plug\"").count(), expected, "{}", scene.name);
        assert_eq!(draw_mermaid(&scene).matches("endpoint -->").count(), expected, "{}", scene.name);
    }
}

#[test]
fn mermaid_ids_are_plain_and_unique() {
    for scene in sample::scenes() {
        let chart = draw_mermaid(&scene);
        let mut seen = BTreeSet::new();
        let nodes = chart.lines().filter_map(|line| line.trim().split_once("[\"")).map(|(id, _)| id);
        for id in nodes.map(|id| id.trim_start_matches("subgraph ").trim_end_matches('(')) {
            assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{id}");
            assert!(seen.insert(id), "{}: {id}", scene.name);
        }
    }
}

#[test]
fn hosts_come_as_listed_then_as_named_then_chosen_live() {
    let mut scene = sample::crowded_hosts();
    scene.hosts.push(sample::host("alone", Some("attic")));
    scene.hosts.push(sample::host("dense", Some("ignored, for it was listed before")));
    scene.desired.machines[0].host = sample::live().desired.machines[0].host.clone();
    let topology = Topology::new(&scene.desired, &scene.hosts);
    let names: Vec<_> = topology.hosts().map(|host| words::host(host.name)).collect();
    assert_eq!(names, ["alone", "dense", "calm", "full", "chosen live"]);
    let zones: Vec<_> = topology.zones.iter().map(|zone| zone.name).collect();
    assert_eq!(zones, [Some("attic"), None]);
}

#[test]
fn lanes_are_drawn_only_for_zones() {
    let lanes = |scene: &Scene| draw_svg(scene).matches("class=\"lane\"").count();
    assert_eq!((lanes(&sample::three_hosts()), lanes(&sample::two_zones())), (0, 2));
}

#[test]
fn sizes_read_as_people_write_them() {
    for (mib, text) in [(512, "512 MiB"), (8192, "8 GiB"), (1536, "1.5 GiB"), (3 << 19, "1.5 TiB")] {
        assert_eq!(words::size(Size::from_mib(mib)), text);
    }
}

/// Checks that tags nest and that text between them is escaped.
fn check_tags(xml: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut pieces = xml.split('<');
    pieces.next();
    for piece in pieces {
        let (tag, text) = piece.split_once('>').ok_or_else(|| format!("`<` in `{piece}`"))?;
        check_text(text)?;
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            let opened = open.pop();
            (opened == Some(name)).then_some(()).ok_or_else(|| format!("{name} closes {opened:?}"))?;
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open.is_empty().then_some(()).ok_or_else(|| format!("open at the end: {open:?}"))
}

fn check_text(text: &str) -> Result<(), String> {
    let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
    let entities =
        text.match_indices('&').all(|(i, _)| known.iter().any(|entity| text[i..].starts_with(entity)));
    let plain = !text.contains('>') && !text.chars().any(|c| c.is_control() && c != '\n');
    (entities && plain).then_some(()).ok_or_else(|| format!("unescaped: `{text}`"))
}

/// Checks that every rectangle is within the page.
fn check_bounds(svg: &str) -> Result<(), String> {
    let value = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\"")).expect(name);
        rest.split('"').next().expect(name).parse::<usize>().expect(name)
    };
    let (width, height) = (value(svg, "width"), value(svg, "height"));
    for rect in svg.split('<').filter(|tag| tag.starts_with("rect ")) {
        let right = value(rect, "x") + value(rect, "width");
        let bottom = value(rect, "y") + value(rect, "height");
        if right > width || bottom > height {
            return Err(format!("outside {width} by {height}: {rect}"));
        }
    }
    Ok(())
}

#[test]
fn the_legend_explains_only_what_is_drawn() {
    let legend = |scene: &Scene| {
        let picture = svg(&scene.desired, &scene.hosts);
        ["control plane", "worker", "PCI device"].map(|text| picture.contains(&format!(">{text}</text>")))
    };
    assert_eq!(legend(&sample::three_hosts()), [true, true, false]);
    assert_eq!(legend(&sample::two_zones()), [true, true, true]);
    assert_eq!(legend(&sample::spread(3, 2)), [false, true, false]);
}
