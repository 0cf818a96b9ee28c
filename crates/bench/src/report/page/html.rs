//! Elements of HTML. Arguments that are named `html` are markup already, all others are escaped here.

use crate::report::plot::escape;

/// A table with a caption, a heading for each column and for each line.
#[derive(Debug)]
pub(super) struct HtmlTable {
    caption: String,
    headings: Vec<&'static str>,
    /// Cells, as markup.
    lines: Vec<Vec<String>>,
    /// Columns are of words, not of figures.
    is_of_words: bool,
}

/// Text between tags.
pub(super) fn text(words: &str) -> String {
    escape(words)
}

pub(super) fn element(name: &str, html: &str) -> String {
    format!("<{name}>{html}</{name}>\n")
}

/// Names and values.
pub(super) fn list(facts: &[(&str, &str)]) -> String {
    let fact = |(name, value): &(&str, &str)| {
        format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value))
    };
    let facts: String = facts.iter().map(fact).collect();
    if facts.is_empty() { facts } else { format!("<dl>\n{facts}</dl>\n") }
}

/// Something wide, which scrolls by itself, also by the keyboard.
pub(super) fn wide(name: &str, label: &str, html: &str) -> String {
    let label = escape(label);
    format!(
        "<{name} class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\">\n{html}</{name}>\n"
    )
}

/// Words in the colour of good or bad news. The words say it, too.
pub(super) fn verdict(is_good: bool, words: &str) -> String {
    let class = if is_good { "held" } else { "short" };
    format!("<span class=\"{class}\">{}</span>", escape(words))
}

// === impl HtmlTable ===

impl HtmlTable {
    pub(super) fn new(caption: &str, headings: &[&'static str]) -> Self {
        let (caption, headings) = (caption.to_owned(), headings.to_vec());
        Self { caption, headings, lines: Vec::new(), is_of_words: false }
    }

    /// One that has sentences in its cells.
    pub(super) fn of_words(caption: &str, headings: &[&'static str]) -> Self {
        Self { is_of_words: true, ..Self::new(caption, headings) }
    }

    /// Adds a line, of which the first cell is the heading; cells that are left out at its end are empty.
    pub(super) fn row(&mut self, mut html: Vec<String>) {
        html.resize(self.headings.len(), String::new());
        self.lines.push(html);
    }

    /// Without the columns that are empty in all lines.
    pub(super) fn to_html(&self) -> String {
        let is_used = |place: usize| {
            place == 0
                || self.lines.iter().any(|line| line.get(place).is_some_and(|it| !it.is_empty()))
        };
        let used: Vec<bool> = (0..self.headings.len()).map(is_used).collect();
        let shown = |cells: &mut dyn Iterator<Item = String>| -> String {
            cells.zip(&used).filter(|(_, used)| **used).map(|(cell, _)| cell).collect()
        };
        let heading = |heading: &&str| format!("<th scope=\"col\">{}</th>", escape(heading));
        let headings = shown(&mut self.headings.iter().map(heading));
        let mut lines = String::new();
        for line in &self.lines {
            let cell = |(place, html): (usize, &String)| match place {
                0 => format!("<th scope=\"row\">{html}</th>"),
                _ => format!("<td>{html}</td>"),
            };
            lines += &element("tr", &shown(&mut line.iter().enumerate().map(cell)));
        }
        let caption = element("caption", &escape(&self.caption));
        let head = element("thead", &element("tr", &headings));
        let class = if self.is_of_words { " class=\"words\"" } else { "" };
        let body = element("tbody", &lines);
        let table = format!("<table{class}>\n{caption}{head}{body}</table>\n");
        wide("div", &self.caption, &table)
    }
}
