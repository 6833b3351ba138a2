//! Tables for terminals: columns as wide as their widest cell, two spaces between.
//!
//! A table that is wider than its limit first leaves out its optional columns, then cuts the cells
//! of columns that may be cut.

/// Cells of a column that may be cut keep at least this many characters while an optional column
/// can be left out instead.
const CUT_MIN: usize = 12;

/// Between two columns.
const GAP: usize = 2;

/// The alignment of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
    /// Left, and cut where the table would be too wide.
    Cut,
}

/// A table with a head.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Heads of columns that may be left out, the first of them first.
    optional: Vec<&'static str>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self::with_heads(columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect())
    }

    /// An empty table with heads that are not known beforehand.
    pub(crate) fn with_heads(columns: Vec<(String, Align)>) -> Self {
        Self { columns, rows: Vec::new(), optional: Vec::new() }
    }

    /// Names columns that are left out when the table is too wide, in this order.
    pub(crate) fn optional(mut self, heads: &[&'static str]) -> Self {
        self.optional = heads.to_vec();
        self
    }

    /// Removes a column.
    pub(crate) fn leave_out(&mut self, head: &str) {
        if let Some(at) = self.columns.iter().position(|(name, _)| name == head) {
            self.columns.remove(at);
            self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    }

    /// Adds a row with one cell for each column. A cell of several lines makes the row that high.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "one cell for each column");
        self.rows.push(cells);
    }

    /// The lines, head first; none is longer than `limit` characters.
    pub(crate) fn lines(mut self, limit: Option<usize>) -> Vec<String> {
        if let Some(limit) = limit {
            for head in std::mem::take(&mut self.optional) {
                if total(&self.least_widths()) > limit {
                    self.leave_out(head);
                }
            }
        }
        let mut widths = self.widths();
        if let Some(limit) = limit {
            self.narrow(&mut widths, limit);
        }
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut lines = self.layout(&head, &widths);
        lines.push("-".repeat(total(&widths)));
        lines.extend(self.rows.iter().flat_map(|row| self.layout(row, &widths)));
        match limit {
            Some(limit) => lines.iter().map(|line| cut(line, limit)).collect(),
            None => lines,
        }
    }

    /// Widths that fit every cell.
    fn widths(&self) -> Vec<usize> {
        let widest = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.flat_map(|cell| cell.lines()).map(width).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(|(at, (name, _))| widest(at).max(width(name))).collect()
    }

    /// Widths with cells cut to the least that is still useful.
    fn least_widths(&self) -> Vec<usize> {
        let least = |(width, (_, align)): (usize, &(String, Align))| match align {
            Align::Cut => width.min(CUT_MIN),
            Align::Left | Align::Right => width,
        };
        self.widths().into_iter().zip(&self.columns).map(least).collect()
    }

    /// Narrows the widest column that may be cut until the table fits, or no column can be cut
    /// further.
    fn narrow(&self, widths: &mut [usize], limit: usize) {
        for _ in limit..total(widths) {
            let columns = widths.iter_mut().zip(&self.columns).filter(|(_, (_, align))| *align == Align::Cut);
            let Some((widest, (name, _))) = columns.max_by_key(|(width, _)| **width) else { return };
            if *widest <= width(name) {
                return;
            }
            *widest -= 1;
        }
    }

    fn layout(&self, cells: &[String], widths: &[usize]) -> Vec<String> {
        let height = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
        (0..height)
            .map(|line| {
                let mut text = String::new();
                for ((cell, width_wanted), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
                    let part = cut(cell.lines().nth(line).unwrap_or_default(), *width_wanted);
                    let fill = " ".repeat(width_wanted.saturating_sub(width(&part)));
                    match align {
                        Align::Left | Align::Cut => text.extend([part, fill]),
                        Align::Right => text.extend([fill, part]),
                    }
                    text.push_str(&" ".repeat(GAP));
                }
                text.trim_end().to_owned()
            })
            .collect()
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// The text, or its beginning and `…`: at most `limit` characters.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
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
        assert_eq!(table.lines(None), expected);
    }

    fn wide() -> Table {
        let columns = [("ID", Align::Left), ("Tags", Align::Cut), ("Series", Align::Cut), ("Size", Align::Right)];
        let mut table = Table::new(&columns).optional(&["Size", "Tags"]);
        table
            .row(["1a2b", "daily,weekly,monthly", "host:/a/long/path/of/a/series", "1.0 KiB"].map(String::from).into());
        table.row(["3c4d", "", "host:/b", "5 B"].map(String::from).into());
        table
    }

    #[test]
    fn cells_are_cut_where_the_table_would_be_too_wide() {
        let lines = wide().lines(Some(48));
        assert!(lines.iter().all(|line| width(line) <= 48), "{lines:#?}");
        assert!(lines[2].starts_with("1a2b  daily,weekly") && lines[2].ends_with("…  1.0 KiB"), "{lines:#?}");
        assert!(lines[3].ends_with("    5 B"), "{lines:#?}");
        assert_eq!(wide().lines(Some(200)), wide().lines(None));
    }

    #[test]
    fn optional_columns_go_before_cells_are_too_short() {
        let lines = wide().lines(Some(36));
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["ID", "Tags", "Series"]);
        let lines = wide().lines(Some(20));
        assert_eq!(lines, ["ID    Series", "--------------------", "1a2b  host:/a/long/…", "3c4d  host:/b"]);
    }

    #[test]
    fn no_line_is_longer_than_the_limit() {
        for limit in 1..90 {
            let lines = wide().lines(Some(limit));
            assert!(lines.iter().all(|line| width(line) <= limit), "{limit}: {lines:#?}");
        }
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
    }

    #[test]
    fn a_column_is_left_out() {
        let mut table = wide();
        table.leave_out("Tags");
        table.leave_out("Nothing");
        assert_eq!(table.lines(None)[3], "3c4d  host:/b                            5 B");
    }
}
