//! Tables for terminals: columns as wide as their widest cell, two spaces between.

/// On which side of a column its cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table with a head.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self::with_heads(columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect())
    }

    /// An empty table with heads that are not known beforehand.
    pub(crate) fn with_heads(columns: Vec<(String, Align)>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row with one cell for each column. A cell of several lines makes the row that high.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "one cell for each column");
        self.rows.push(cells);
    }

    /// The lines, head first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let widest = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.flat_map(|cell| cell.lines()).map(width).max().unwrap_or(0)
        };
        let widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(at, (name, _))| widest(at).max(width(name))).collect();
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut lines = self.layout(&head, &widths);
        lines.push("-".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)));
        lines.extend(self.rows.iter().flat_map(|row| self.layout(row, &widths)));
        lines
    }

    fn layout(&self, cells: &[String], widths: &[usize]) -> Vec<String> {
        let height = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
        (0..height)
            .map(|line| {
                let mut text = String::new();
                for ((cell, width_wanted), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
                    let part = cell.lines().nth(line).unwrap_or_default();
                    let fill = " ".repeat(width_wanted.saturating_sub(width(part)));
                    match align {
                        Align::Left => text.extend([part, &fill]),
                        Align::Right => text.extend([fill.as_str(), part]),
                    }
                    text.push_str("  ");
                }
                text.trim_end().to_owned()
            })
            .collect()
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_under_their_heads() {
        let mut table = Table::new(&[("ID", Align::Left), ("Size", Align::Right), ("Paths", Align::Left)]);
        table.row(vec!["1a".to_owned(), "1.0 KiB".to_owned(), "/ä\n/b".to_owned()]);
        table.row(vec!["2b3c".to_owned(), "5 B".to_owned(), "/c".to_owned()]);
        let expected = [
            "ID       Size  Paths",
            "--------------------",
            "1a    1.0 KiB  /ä",
            "               /b",
            "2b3c      5 B  /c",
        ];
        assert_eq!(table.lines(), expected);
    }
}
