//! Tests that pictures are well-formed and values are at the right place.

use super::*;

/// An element, with the parts that these tests examine.
#[derive(Debug)]
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
}

impl Element {
    fn get(&self, name: &str) -> &str {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("{} has no {name}", self.name), |(_, value)| value.as_str())
    }

    fn number(&self, name: &str) -> f64 {
        self.get(name).parse().unwrap()
    }
}

/// Parses markup strictly: every tag closed in order, every attribute quoted and unique, no stray
/// `<` or `&`.
fn parse(text: &str) -> Vec<Element> {
    let mut elements = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed in order");
            continue;
        }
        let (tag, is_closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(!name.is_empty() && name.chars().all(char::is_alphanumeric), "tag '{tag}'");
        if !is_closed {
            open.push(name.to_owned());
        }
        elements.push(Element { name: name.to_owned(), attributes: parse_attributes(attributes) });
    }
    check_text(rest);
    assert!(open.is_empty(), "left open: {open:?}");
    elements
}

fn parse_attributes(mut text: &str) -> Vec<(String, String)> {
    let mut attributes: Vec<(String, String)> = Vec::new();
    while !text.trim().is_empty() {
        let (name, rest) = text.split_once("=\"").unwrap_or_else(|| panic!("attributes '{text}'"));
        let (value, rest) = rest.split_once('"').expect("a value ends");
        check_text(value);
        let name = name.trim().to_owned();
        assert!(attributes.iter().all(|(known, _)| *known != name), "{name} twice");
        attributes.push((name, value.to_owned()));
        text = rest;
    }
    attributes
}

fn check_text(text: &str) {
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;"];
        assert!(known.iter().any(|name| text[at..].starts_with(name)), "a stray & in '{text}'");
    }
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
}

fn points(svg: &str) -> Vec<(f64, f64)> {
    let start = |data: &str| {
        let (x, rest) = data.strip_prefix('M').unwrap().split_once(' ').unwrap();
        (x.parse().unwrap(), rest.split('m').next().unwrap().parse().unwrap())
    };
    let is_point = |element: &&Element| element.attributes.iter().any(|(_, v)| v == "point");
    parse(svg).iter().filter(is_point).map(|element| start(element.get("d"))).collect()
}

const ODD: &str = "a<b & \"c\"\u{1}";

#[test]
fn values_lie_where_they_belong() {
    let chart = Chart::new("t", Axis::new("x").from(0.0).to(10.0), Axis::new("y").to(100.0))
        .line("only", &[(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)]);
    // Left and right margins 76 and 20 of 720; one row of legend; the bottom 52 above the edge. The
    // first marker would belong to a legend of points, which this chart does not have.
    assert_eq!(points(&chart.svg()), [(76.0, 348.0), (388.0, 204.0), (700.0, 60.0)]);
}

#[test]
fn what_cannot_be_drawn_is_left_out() {
    let axis = || Axis::new("x").log();
    let chart = Chart::new("t", axis(), axis()).points(
        "a",
        &[(0.0, 1.0), (1.0, -1.0), (f64::NAN, 2.0), (f64::INFINITY, 2.0), (10.0, 10.0)],
    );
    // The legend's own and one more.
    assert_eq!(points(&chart.svg()).len(), 2);
    let empty = Chart::new("t", axis(), axis()).line("a", &[]).steps("b", &[]).rule("c", -1.0);
    parse(&empty.svg());
    assert!(!empty.svg().contains("NaN"));
    parse(&Bars::new("t", Axis::new("y"), &[] as &[&str]).svg());
}

#[test]
fn pictures_and_pages_are_well_formed_whatever_the_text() {
    let chart = Chart::new(ODD, Axis::new(ODD), Axis::new(ODD))
        .line(ODD, &[(1.0, 2.0), (2.0, 3.0)])
        .points(ODD, &[(1.5, 1.0)])
        .steps(ODD, &[(1.0, 1.0), (1.2, 3.0), (2.0, 3.0)])
        .rule(ODD, 2.5);
    let bars = Bars::new(ODD, Axis::new(ODD), &[ODD, "b"]).series(ODD, &[Some(1.0), None]);
    let table = Table::new(&[ODD, "b"]).row(&[ODD, "1"]);
    let svg = chart.svg();
    let elements = parse(&svg);
    assert_eq!(elements[0].get("role"), "img");
    assert!(elements[0].get("aria-label").starts_with("a&lt;b &amp;"));
    assert_eq!(elements[1].name, "title");
    let page = Page::new(ODD)
        .heading(ODD)
        .text(ODD)
        .heading("second")
        .subheading(ODD)
        .figure(&svg, ODD)
        .figure(&bars.svg(), "")
        .heading("third")
        .list(&[ODD])
        .note(ODD)
        .code(ODD)
        .table(&table);
    let elements = parse(&page.html());
    let links: Vec<&str> =
        elements.iter().filter(|e| e.name == "a").map(|e| e.get("href")).collect();
    assert_eq!(links, ["#s1", "#s2", "#s3"]);
    assert!(!elements.iter().any(|e| e.name == "script" || e.name == "link"));
}

#[test]
fn bars_stand_on_zero_with_their_heights() {
    let bars = Bars::new("t", Axis::new("y").from(0.0).to(100.0), &["a", "b"])
        .series("ours", &[Some(50.0), Some(100.0)])
        .series("theirs", &[Some(25.0), None]);
    let boxes: Vec<(f64, f64)> = parse(&bars.svg())
        .iter()
        .filter(|element| element.name == "rect")
        .skip(2) // The legend's.
        .map(|element| (element.number("y"), element.number("height")))
        .collect();
    assert_eq!(boxes, [(204.0, 144.0), (60.0, 288.0), (276.0, 72.0)]);
    assert_eq!(bars.csv(), ",ours,theirs\na,50,25\nb,100,\n");
}

#[test]
fn steps_hold_until_the_next() {
    let chart = Chart::new("t", Axis::new("x").from(0.0).to(2.0), Axis::new("y").to(1.0))
        .steps("busy", &[(0.0, 1.0), (1.0, 0.5), (2.0, 0.0)]);
    let svg = chart.svg();
    assert!(svg.contains("d=\"M76 60H388V204H700V348V348H76Z\""), "{svg}");
}

#[test]
fn tables_say_the_same_in_three_ways() {
    let table = Table::new(&["what", "s"]).row(&["a, \"b\"", "1.5"]).row(&["c|d", "20"]);
    assert_eq!(table.csv(), "what,s\n\"a, \"\"b\"\"\",1.5\nc|d,20\n");
    assert_eq!(table.markdown(), "| what | s |\n|---|--:|\n| a, \"b\" | 1.5 |\n| c\\|d | 20 |\n");
    assert!(table.html().contains("<td class=\"figure\">20</td>"));
    let chart =
        Chart::new("t", Axis::new("x"), Axis::new("y")).line("l", &[(1.0, 0.5)]).rule("r", 2.0);
    assert_eq!(chart.csv(), "series,x,y\nl,1,0.5\nr,,2\n");
}

#[test]
fn figures_have_the_digits_that_count() {
    let shown = [0.0, 0.05, 0.30000000000000004, 85.9, 99.126, 1000.0, 2_330_000.0, -12345.6, 1e-7];
    let text: Vec<String> = shown.iter().map(|value| figure(*value)).collect();
    assert_eq!(
        text,
        ["0", "0.05", "0.3", "85.9", "99.13", "1,000", "2,330,000", "-12,346", "1.00e-7"]
    );
}
