//! Tables of text cells, as HTML, Markdown and CSV.

use super::svg::escape;

/// A header and rows of text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    #[must_use]
    pub fn new(header: &[impl AsRef<str>]) -> Self {
        Self { header: owned(header), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it does not have one cell for each column.
    #[must_use]
    pub fn row(mut self, cells: &[impl AsRef<str>]) -> Self {
        assert_eq!(cells.len(), self.header.len(), "a row has a cell for each column");
        self.rows.push(owned(cells));
        self
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Comma-separated values, quoted if needed, with a header.
    #[must_use]
    pub fn csv(&self) -> String {
        let cell = |cell: &String| match cell.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        };
        let line =
            |cells: &Vec<String>| cells.iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
        std::iter::once(&self.header).chain(&self.rows).map(line).collect()
    }

    /// A Markdown table.
    #[must_use]
    pub fn markdown(&self) -> String {
        let cell = |cell: &String| cell.replace('|', "\\|").replace('\n', " ");
        let line = |cells: &Vec<String>| {
            format!("| {} |\n", cells.iter().map(cell).collect::<Vec<_>>().join(" | "))
        };
        let rule: String = (0..self.header.len())
            .map(|at| if self.is_figures(at) { "--:|" } else { "---|" })
            .collect();
        let rows: String = self.rows.iter().map(line).collect();
        format!("{}|{rule}\n{rows}", line(&self.header))
    }

    /// An HTML table; columns of figures are right-aligned.
    #[must_use]
    pub fn html(&self) -> String {
        let aligned: Vec<&str> = (0..self.header.len())
            .map(|at| if self.is_figures(at) { " class=\"figure\"" } else { "" })
            .collect();
        let line = |tag: &str, cells: &[String]| {
            let cells: String = cells
                .iter()
                .zip(&aligned)
                .map(|(cell, class)| format!("<{tag}{class}>{}</{}>", escape(cell), &tag[..2]))
                .collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(|row| line("td", row)).collect();
        let head = line("th scope=\"col\"", &self.header);
        format!(
            "<div class=\"wide\"><table>\n<thead>{head}</thead>\n\
             <tbody>\n{rows}</tbody>\n</table></div>\n"
        )
    }

    /// True if every cell of a column begins like a number, or is empty.
    fn is_figures(&self, column: usize) -> bool {
        let is_figure = |cell: &str| {
            let start = cell.trim_start_matches(['-', '+', '≥', '≤', '<', '>', '~', ' ']);
            start.is_empty() || start.starts_with(|c: char| c.is_ascii_digit())
        };
        !self.rows.is_empty() && self.rows.iter().all(|row| is_figure(&row[column]))
    }
}

fn owned(cells: &[impl AsRef<str>]) -> Vec<String> {
    cells.iter().map(|cell| cell.as_ref().to_owned()).collect()
}

/// Formats a value for people: four significant digits, and thousands separated.
#[must_use]
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let size = value.abs();
    if size >= 1e15 || (size > 0.0 && size < 1e-4) {
        return format!("{value:.2e}");
    }
    if size >= 999.5 {
        let digits = format!("{size:.0}");
        let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        return text;
    }
    let whole_digits = if size < 1.0 { 0 } else { size.log10().floor() as usize + 1 };
    // Small figures keep four digits after their leading zeros.
    let zeros = if size > 0.0 && size < 1.0 { (-size.log10().ceil()) as usize } else { 0 };
    let text = format!("{value:.*}", (4 - whole_digits.min(4)) + zeros);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
