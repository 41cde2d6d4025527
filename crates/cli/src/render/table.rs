//! Tables without lines, for people and for `awk`.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, presets};

use super::text;

/// A table of text. Its cells are made safe for terminals.
#[derive(Debug)]
pub struct Table {
    inner: comfy_table::Table,
    titles: Vec<String>,
    dispensable: Vec<usize>,
}

/// Space between columns.
const GAP: u16 = 2;

impl Table {
    /// Starts a table with its column titles.
    pub fn new<const N: usize>(titles: [&str; N]) -> Self {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING).set_header(titles);
        Self { inner, titles: titles.map(str::to_owned).to_vec(), dispensable: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        let shown = |cell: String| if cell.is_empty() { "-".to_owned() } else { text::safe_line(&cell) };
        self.inner.add_row(cells.map(shown));
    }

    /// Aligns columns of numbers to the right.
    #[must_use]
    pub fn numbers<const N: usize>(mut self, columns: [usize; N]) -> Self {
        for index in columns {
            if let Some(column) = self.inner.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self
    }

    /// Names the columns that a narrow terminal does without, those first that are missed least.
    #[must_use]
    pub fn dispensable<const N: usize>(mut self, columns: [usize; N]) -> Self {
        self.dispensable = columns.to_vec();
        self
    }

    /// Names the columns whose cells are never broken, because they are words with a meaning.
    #[must_use]
    pub fn unbroken<const N: usize>(mut self, columns: [usize; N]) -> Self {
        for index in columns {
            if let Some(column) = self.inner.column_mut(index) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        self
    }

    /// Returns the table as lines. If there is a width to fit, columns that can be spared are left
    /// out, and long cells are broken.
    pub fn render(mut self, width: Option<u16>) -> String {
        let mut left_out = Vec::new();
        if let Some(width) = width {
            left_out = self.leave_out(width);
            self.inner.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        for column in self.inner.column_iter_mut() {
            column.set_padding((0, GAP));
        }
        let rendered = self.inner.trim_fmt();
        let (titles, rows) = rendered.split_once('\n').unwrap_or((&rendered, ""));
        let mut lines = format!("{}\n{rows}\n", text::bold(titles));
        if !left_out.is_empty() {
            lines += &format!("(a wider terminal shows {} too)\n", text::list(&left_out));
        }
        lines
    }

    /// Hides columns until the others fit, and returns their titles.
    fn leave_out(&mut self, width: u16) -> Vec<String> {
        let widths = self.inner.column_max_content_widths();
        let mut needed: u32 = widths.iter().map(|width| u32::from(width + GAP)).sum();
        let mut hidden = Vec::new();
        for index in &self.dispensable {
            if needed <= u32::from(width) {
                break;
            }
            if let Some(column) = self.inner.column_mut(*index) {
                column.set_constraint(ColumnConstraint::Hidden);
                needed -= u32::from(widths[*index] + GAP);
                hidden.push(*index);
            }
        }
        hidden.sort_unstable();
        hidden.into_iter().map(|index| self.titles[index].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(width: Option<u16>) -> String {
        let mut table = Table::new(["NAME", "SIZE", "ABOUT"]).numbers([1]);
        table.row(["a".into(), "5".into(), "some words about a".into()]);
        table.row(["longer".into(), "1000".into(), String::new()]);
        anstream::adapter::strip_str(&table.render(width)).to_string()
    }

    #[test]
    fn columns_line_up() {
        insta::assert_snapshot!(sample(None), @r"
        NAME    SIZE  ABOUT
        a          5  some words about a
        longer  1000  -
        ");
    }

    #[test]
    fn a_narrow_terminal_breaks_cells() {
        assert!(sample(Some(24)).lines().all(|line| line.chars().count() <= 24));
    }

    #[test]
    fn a_narrow_terminal_does_without_columns_that_can_be_spared() {
        let wide = |width| {
            let mut table = Table::new(["NAME", "SIZE", "IMAGE", "MAC"]).dispensable([2, 3]);
            table.row(["a".into(), "5".into(), "x".repeat(20), "y".repeat(10)]);
            anstream::adapter::strip_str(&table.render(Some(width))).to_string()
        };
        assert!(wide(60).contains("IMAGE") && !wide(60).contains("wider"));
        insta::assert_snapshot!(wide(30), @r"
        NAME  SIZE  MAC
        a     5     yyyyyyyyyy
        (a wider terminal shows IMAGE too)
        ");
        insta::assert_snapshot!(wide(12), @r"
        NAME  SIZE
        a     5
        (a wider terminal shows IMAGE and MAC too)
        ");
    }
}
