//! Tables with frames.

/// The widths of columns, by the longest line of a cell.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            let longest = cell.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            *width = longest.max(*width);
        }
    }
    widths
}

fn row_lines(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<Vec<&str>> = row.iter().map(|cell| cell.split('\n').collect()).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(1);
    let mut text = String::new();
    for line in 0..height {
        text.push('|');
        for (cell, &width) in cells.iter().zip(widths) {
            let part = cell.get(line).copied().unwrap_or_default();
            text.push_str(&format!(" {part:width$} |"));
        }
        text.push('\n');
    }
    text
}

fn frame(widths: &[usize]) -> String {
    let parts: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    format!("+{}+\n", parts.join("+"))
}

/// A table under a header.
pub(crate) fn horizontal(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    let all: Vec<Vec<String>> = std::iter::once(&header).chain(rows).cloned().collect();
    let widths = widths(&all);
    let frame = frame(&widths);
    let body: String = rows.iter().map(|row| row_lines(row, &widths)).collect();
    let end = if rows.is_empty() { "" } else { &frame };
    format!("{frame}{}{frame}{body}{end}", row_lines(&header, &widths))
}

/// Keys and values.
pub(crate) fn vertical(rows: &[(&str, String)]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|(key, value)| vec![(*key).to_owned(), value.clone()]).collect();
    let widths = widths(&rows);
    let frame = frame(&widths);
    let body: String = rows.iter().map(|row| row_lines(row, &widths)).collect();
    format!("{frame}{body}{frame}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_may_have_lines() {
        let table = vertical(&[("a", "1\n22".to_owned()), ("bb", String::new())]);
        let expected = "+----+----+\n| a  | 1  |\n|    | 22 |\n| bb |    |\n+----+----+\n";
        assert_eq!(table, expected);
        let rows = [vec!["1".to_owned(), "x".to_owned()]];
        let expected = "+----+---+\n| ID | N |\n+----+---+\n| 1  | x |\n+----+---+\n";
        assert_eq!(horizontal(&["ID", "N"], &rows), expected);
    }
}
