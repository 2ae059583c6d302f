//! The page: one file that needs no network, and for all but the timeline no script.

use std::fmt::Write as _;

use super::text::{headline, kind_cells, kind_header, lines};
use super::units::{bytes, count, html, html_lines, percent, seconds};
use super::{Comparison, Report, ratio, svg};
use crate::causes::CAUSES;

const STYLE: &str = include_str!("../../page/report.css");
const SCRIPT: &str = include_str!("../../page/report.js");

pub(super) fn page(
    report: &Report<'_>,
    file: &[u8],
    comparison: Option<&Comparison>,
    hash: &dyn Fn(&[u8]) -> String,
) -> String {
    let (script, style) = (hash(SCRIPT.as_bytes()), hash(STYLE.as_bytes()));
    let title = html(format!("Job {} {}", report.job, report.name).trim_end());
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1></header>\n<main>\n"
    );
    summary(&mut page, report);
    section(&mut page, "causes", "Slot time", &causes(report));
    section(&mut page, "timeline", "Timeline", TIMELINE);
    if let Some(comparison) = comparison {
        section(&mut page, "comparison", "Comparison", &compared(comparison));
    }
    let kinds = table(&kind_header(report), &kind_cells(report));
    section(&mut page, "kinds", "Kinds", &kinds);
    section(&mut page, "failures", "Failures", &failures(report));
    section(&mut page, "slowest", "Slowest tasks", &slowest(report));
    section(&mut page, "data", "Data moved between nodes", &links(report));
    section(&mut page, "nodes", "Nodes", &nodes(report));
    page.push_str("</main>\n<script type=\"text/plain\" id=\"record\">");
    base64(&mut page, file);
    let _ = write!(page, "</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

const TIMELINE: &str = "<p id=\"timeline-note\">The timeline needs a script. \
    The tables below have its figures.</p>\n\
    <div id=\"timeline-box\" hidden>\n\
    <p class=\"buttons\"><button id=\"zoom-in\">Zoom in</button> \
    <button id=\"zoom-out\">Zoom out</button> <button id=\"earlier\">Earlier</button> \
    <button id=\"later\">Later</button> <button id=\"all\">All</button></p>\n\
    <canvas id=\"canvas\" tabindex=\"0\" role=\"img\" \
    aria-label=\"Attempts by slot and time; the tables below have the figures\"></canvas>\n\
    <p id=\"legend\"></p>\n<p id=\"under\" role=\"status\"></p>\n</div>\n";

fn section(page: &mut String, id: &str, title: &str, body: &str) {
    if !body.is_empty() {
        let _ = write!(
            page,
            "<section id=\"{id}\" aria-labelledby=\"h-{id}\">\n<h2 id=\"h-{id}\">{title}</h2>\n\
             {body}</section>\n"
        );
    }
}

fn summary(page: &mut String, report: &Report<'_>) {
    page.push_str("<section id=\"summary\" aria-label=\"Summary\">\n<table>\n");
    for (key, value) in lines(report) {
        let is_missing = if key == "missing" { " class=\"warn\"" } else { "" };
        let value = html(&value);
        let _ = writeln!(page, "<tr{is_missing}><th scope=\"row\">{key}</th><td>{value}</td></tr>");
    }
    page.push_str("</table>\n</section>\n");
}

/// A table that scrolls on a narrow screen.
fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table\">\n<table>\n<tr>",
    );
    for cell in header {
        let _ = write!(text, "<th scope=\"col\">{cell}</th>");
    }
    text.push_str("</tr>\n");
    for row in rows {
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<td>{}</td>", html(cell));
        }
        text.push_str("</tr>\n");
    }
    text + "</table>\n</div>\n"
}

fn causes(report: &Report<'_>) -> String {
    let whole = report.slots as f64 * report.makespan_s;
    let mut text = svg::causes(report);
    let _ = write!(
        text,
        "<p class=\"axis\"><span>0 s</span><span>{}</span></p>\n<table>\n\
         <tr><th scope=\"col\">cause</th><th scope=\"col\">share</th><th scope=\"col\">slot time\
         </th></tr>\n",
        seconds(report.makespan_s)
    );
    for (number, ((_, word), part)) in CAUSES.iter().zip(report.causes.seconds.all()).enumerate() {
        if part > 0.0 {
            let _ = writeln!(
                text,
                "<tr><td><span class=\"key cause{number}\"></span> {word}</td><td>{}</td>\
                 <td>{}</td></tr>",
                percent(ratio(part, whole)),
                seconds(part)
            );
        }
    }
    text + "</table>\n"
}

fn compared(comparison: &Comparison) -> String {
    let rows: Vec<_> = comparison.figures.iter().map(|row| row.cells().to_vec()).collect();
    let against = html(&comparison.against);
    let table = table(&["figure", "this run", "other run", "change"], &rows);
    format!("<p>The other run: {against}</p>\n{table}")
}

fn failures(report: &Report<'_>) -> String {
    let mut text = String::new();
    for row in &report.failures {
        let _ = writeln!(text, "<details><summary>{}</summary>", html(&headline(row)));
        let nodes: Vec<String> = row.group.nodes.iter().map(|node| format!("n{node}")).collect();
        let more = if row.group.more_nodes { " and others" } else { "" };
        let _ = writeln!(text, "<p>on {}{more}</p>", nodes.join(", "));
        for example in &row.group.examples {
            let name = if example.name.is_empty() { &example.task } else { &example.name };
            let _ = writeln!(
                text,
                "<p>{} ({}) on n{}: {}</p>",
                html(name),
                html(&example.task),
                example.node,
                html_lines(&example.error)
            );
            if !example.stderr.is_empty() {
                let _ = writeln!(text, "<pre>{}</pre>", html_lines(&example.stderr));
            }
        }
        text.push_str("</details>\n");
    }
    if report.more_failures > 0 {
        let _ = writeln!(text, "<p>and {} more</p>", count(report.more_failures));
    }
    text
}

fn slowest(report: &Report<'_>) -> String {
    let row = |row: &super::SlowRow| {
        vec![
            row.kind.clone(),
            row.name.clone(),
            row.task.clone(),
            format!("n{}", row.node),
            seconds(row.start_s),
            seconds(row.ran_s),
            row.end.to_owned(),
        ]
    };
    let rows: Vec<_> = report.slowest.iter().map(row).collect();
    table(&["kind", "name", "task", "node", "start", "length", "end"], &rows)
}

fn links(report: &Report<'_>) -> String {
    let row = |link: &crate::record::MetaLink| {
        let rate = ratio(link.bytes as f64, link.took_us as f64 / 1e6);
        vec![
            neighbours(link.from, report.link_level),
            neighbours(link.to, report.link_level),
            count(link.objects),
            bytes(link.bytes),
            format!("{}/s", bytes(rate as u64)),
        ]
    };
    let rows: Vec<_> = report.links.iter().map(row).collect();
    table(&["from", "to", "objects", "bytes", "rate of a transfer"], &rows)
}

/// `n4`, or `n4-n7` where `2^level` neighbours share a row.
fn neighbours(first: u32, level: u32) -> String {
    let others = u32::MAX.checked_shl(level).map_or(u32::MAX, |high| !high);
    match others {
        0 => format!("n{first}"),
        _ => format!("n{first}-n{}", first | others),
    }
}

fn nodes(report: &Report<'_>) -> String {
    let row = |node: &super::NodeRow| {
        vec![
            format!("n{}", node.node),
            count(node.slots.into()),
            count(node.attempts),
            count(node.failed),
            percent(node.utilization),
            bytes(node.bytes_moved),
            bytes(node.bytes_read_local),
        ]
    };
    let rows: Vec<_> = report.per_node.iter().map(row).collect();
    table(&["node", "slots", "attempts", "failed", "busy", "moved here", "read locally"], &rows)
}

/// Appends bytes in base64.
pub(super) fn base64(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            match digit <= group.len() {
                true => {
                    let place = bits >> (18 - 6 * digit) & 63;
                    out.push(char::from(DIGITS[place as usize]));
                }
                false => out.push('='),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_as_in_its_standard() {
        for (bytes, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            let mut text = String::new();
            base64(&mut text, bytes.as_bytes());
            assert_eq!(text, expected);
        }
    }
}
