//! One self-contained HTML file of text, figures and tables.

use super::svg::escape;
use super::table::Table;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24;background:#fff}\
a{color:#0060a8}nav ul{columns:2;padding-left:1.2rem}\
figure{margin:1rem 0}figure svg{max-width:100%;height:auto;border:1px solid #d8dce1}\
figcaption,.note{color:#555b63;font-size:.9rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0;font-size:.9rem}\
th,td{border-bottom:1px solid #d8dce1;padding:.3rem .7rem;text-align:left;vertical-align:top}\
.figure{text-align:right;font-variant-numeric:tabular-nums}\
pre{overflow-x:auto;background:#f3f4f6;padding:.7rem}\
@media (prefers-color-scheme:dark){body{color:#e4e7ea;background:#16191d}a{color:#7cc0f5}\
figure svg,th,td{border-color:#363b42}figcaption,.note{color:#a9aeb6}pre{background:#22262b}}";

/// A page that grows from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    headings: Vec<String>,
    body: String,
}

impl Page {
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), headings: Vec::new(), body: String::new() }
    }

    /// Begins a section and adds it to the contents at the top.
    #[must_use]
    pub fn heading(mut self, text: &str) -> Self {
        self.headings.push(text.to_owned());
        let (number, text) = (self.headings.len(), escape(text));
        self.put(&format!("<h2 id=\"s{number}\">{text}</h2>\n"))
    }

    /// A smaller heading inside a section.
    #[must_use]
    pub fn subheading(self, text: &str) -> Self {
        let text = escape(text);
        self.put(&format!("<h3>{text}</h3>\n"))
    }

    #[must_use]
    pub fn text(self, text: &str) -> Self {
        let text = escape(text);
        self.put(&format!("<p>{text}</p>\n"))
    }

    /// A remark in smaller print.
    #[must_use]
    pub fn note(self, text: &str) -> Self {
        let text = escape(text);
        self.put(&format!("<p class=\"note\">{text}</p>\n"))
    }

    #[must_use]
    pub fn list(self, items: &[impl AsRef<str>]) -> Self {
        let items: String =
            items.iter().map(|item| format!("<li>{}</li>\n", escape(item.as_ref()))).collect();
        self.put(&format!("<ul>\n{items}</ul>\n"))
    }

    /// Preformatted text, such as a command line.
    #[must_use]
    pub fn code(self, text: &str) -> Self {
        let text = escape(text);
        self.put(&format!("<pre>{text}</pre>\n"))
    }

    /// A picture of [`super::Chart::svg`] or [`super::Bars::svg`] with its caption.
    #[must_use]
    pub fn figure(self, svg: &str, caption: &str) -> Self {
        let caption = match caption {
            "" => String::new(),
            text => format!("<figcaption>{}</figcaption>\n", escape(text)),
        };
        self.put(&format!("<figure>\n{svg}{caption}</figure>\n"))
    }

    #[must_use]
    pub fn table(self, table: &Table) -> Self {
        let html = table.html();
        self.put(&html)
    }

    fn put(mut self, markup: &str) -> Self {
        self.body.push_str(markup);
        self
    }

    /// The HTML text. It is well-formed XML too.
    #[must_use]
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let items: String = (1..)
            .zip(&self.headings)
            .map(|(number, text)| format!("<li><a href=\"#s{number}\">{}</a></li>\n", escape(text)))
            .collect();
        let contents = match self.headings.len() {
            0..=2 => String::new(),
            _ => format!("<nav aria-label=\"contents\"><ul>\n{items}</ul></nav>\n"),
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
             {contents}{}</body>\n</html>\n",
            self.body
        )
    }
}
