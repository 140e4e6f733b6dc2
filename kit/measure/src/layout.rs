//! Tables and sentences as text: columns aligned, values equal in all rows printed once above them, and no line longer
//! than the terminal is wide.
//!
//! A table that is too wide is cut into blocks of columns, one below the other. Each begins with the columns that
//! identify a row or, where these would take most of the width or are not unique, with the row's number.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::table::Table;

/// What stands in a column of a block.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    RowNumber,
    Column(usize),
}

impl Part {
    fn of(self, row: &[String]) -> &str {
        match self {
            Part::RowNumber => "",
            Part::Column(at) => &row[at],
        }
    }
}

struct Layout<'a> {
    table: &'a Table,
    titles: Vec<&'a str>,
    rows: Vec<Vec<String>>,
}

/// Columns aligned: text at the left, numbers at the right. In lines of at most `columns` characters, if that is given
/// and a single column is not wider.
pub fn table(table: &Table, columns: Option<usize>) -> String {
    let (titles, rows) = table.shown();
    let layout = Layout { table, titles, rows };
    let all = 0..table.columns.len();
    let (same, visible): (Vec<usize>, Vec<usize>) = all.partition(|at| layout.is_same(*at));
    let mut title = table.title.clone();
    for at in same {
        let value = &layout.rows[0][at];
        if !value.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(title, ", {} {value}", layout.titles[at]);
        }
    }
    let mut out = sentence(&title, columns);
    for (number, block) in layout.blocks(&visible, columns).iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        layout.write(block, &mut out);
    }
    out
}

impl Layout<'_> {
    /// Whether a folding column has one value, or nothing at all.
    fn is_same(&self, at: usize) -> bool {
        let same = self.rows.windows(2).all(|rows| rows[0][at] == rows[1][at]);
        let rows = &self.rows;
        self.table.columns[at].folds && same && rows.first().is_some_and(|row| row[at].is_empty() || rows.len() > 1)
    }

    fn width(&self, part: Part) -> usize {
        match part {
            Part::RowNumber => self.rows.len().to_string().len(),
            Part::Column(at) => {
                let cells = self.rows.iter().map(|row| row[at].chars().count());
                cells.chain([self.titles[at].chars().count()]).max().unwrap_or(0)
            }
        }
    }

    /// With the gap before each.
    fn widths(&self, parts: &[Part]) -> usize {
        parts.iter().map(|part| 2 + self.width(*part)).sum()
    }

    /// Whether no two rows have the same in all of these.
    fn tell_apart(&self, keys: &[Part]) -> bool {
        let of = |row: &Vec<String>| keys.iter().map(|key| key.of(row)).collect::<Vec<_>>().join("\0");
        self.rows.iter().map(of).collect::<BTreeSet<_>>().len() == self.rows.len()
    }

    fn blocks(&self, visible: &[usize], columns: Option<usize>) -> Vec<Vec<Part>> {
        let parts: Vec<Part> = visible.iter().map(|at| Part::Column(*at)).collect();
        let Some(columns) = columns.filter(|columns| self.widths(&parts) > *columns) else { return vec![parts] };
        let is_key = |at: &&usize| self.table.is_text(**at) || self.table.columns[**at].folds;
        let keys = visible.iter().take_while(is_key).count().min(visible.len() - 1);
        let (keys, figures) = parts.split_at(keys);
        let numbered = self.rows.len() > 1 && (self.widths(keys) > columns / 2 || !self.tell_apart(keys));
        let head = if numbered { vec![Part::RowNumber] } else { keys.to_vec() };
        let mut blocks = vec![head.clone()];
        for part in keys.iter().filter(|_| numbered).chain(figures) {
            let is_full = blocks
                .last()
                .is_some_and(|block| block.len() > head.len() && self.widths(block) + 2 + self.width(*part) > columns);
            if is_full {
                blocks.push(head.clone());
            }
            if let Some(block) = blocks.last_mut() {
                block.push(*part);
            }
        }
        blocks
    }

    fn write(&self, block: &[Part], out: &mut String) {
        let widths: Vec<usize> = block.iter().map(|part| self.width(*part)).collect();
        for row in 0..=self.rows.len() {
            let mut line = String::new();
            for (part, width) in block.iter().zip(&widths) {
                // The titles are above the first row. Writing to a String cannot fail.
                let _ = match (*part, row.checked_sub(1)) {
                    (Part::RowNumber, None) => write!(line, "  {:>width$}", "#"),
                    (Part::RowNumber, Some(_)) => write!(line, "  {row:>width$}"),
                    (Part::Column(at), row) => {
                        let cell = row.map_or(self.titles[at], |row| &self.rows[row][at]);
                        if self.table.is_text(at) {
                            write!(line, "  {cell:<width$}")
                        } else {
                            write!(line, "  {cell:>width$}")
                        }
                    }
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
}

/// A line, or with `columns` as many as it takes, those behind the first indented by four more than it. Breaks at
/// blanks.
pub fn sentence(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns.filter(|columns| text.chars().count() > *columns) else { return format!("{text}\n") };
    let indent = text.len() - text.trim_start().len();
    let (mut out, mut used) = (" ".repeat(indent), indent);
    for (number, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if number > 0 && used + 1 + length > columns {
            let _ = write!(out, "\n{:1$}", "", indent + 4);
            used = indent + 4;
        } else if number > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Cell, Column};

    fn wide() -> Table {
        let columns = ["place", "first", "second", "third"].map(|name| Column::new(name, name));
        let mut table = Table::new("t", "A table", columns.to_vec());
        for (place, figure) in [("ext4", 1_000_000), ("xfs", 2_000_000)] {
            table.push(vec![Cell::text(place), Cell::Count(figure), Cell::Count(figure + 1), Cell::Count(figure + 2)]);
        }
        table
    }

    #[test]
    fn a_table_wider_than_the_terminal_goes_on_below() {
        let whole = table(&wide(), None);
        assert_eq!(whole, table(&wide(), Some(40)), "it fits");
        let folded = table(&wide(), Some(30));
        let expected = "A table\n  place      first     second\n  ext4   1,000,000  1,000,001\n  xfs    2,000,000  2,000,001\n\n  \
                        place      third\n  ext4   1,000,002\n  xfs    2,000,002\n";
        assert_eq!(folded, expected);
    }

    #[test]
    fn rows_are_numbered_where_their_names_would_take_the_room() {
        let mut wide = wide();
        for row in &mut wide.rows {
            row[0] = Cell::text("/a/very/long/folder");
        }
        let folded = table(&wide, Some(36));
        let expected = "A table\n  #  place                    first\n  1  /a/very/long/folder  1,000,000\n  2  /a/very/long/folder  2,000,000\n\n  \
                        #     second      third\n  1  1,000,001  1,000,002\n  2  2,000,001  2,000,002\n";
        assert_eq!(folded, expected);
        for row in &mut wide.rows {
            row[0] = Cell::text("same");
        }
        let folded = table(&wide, Some(30));
        assert!(folded.starts_with("A table\n  #  place      first\n  1  same   1,000,000\n  2  same"), "{folded}");
    }

    #[test]
    fn nothing_is_cut_off_however_narrow_it_is() {
        for columns in 0..60 {
            let folded = table(&wide(), Some(columns));
            for cell in wide().shown().1.concat() {
                assert!(folded.contains(&cell), "{cell} in {columns} columns: {folded}");
            }
        }
        assert_eq!(table(&Table::new("t", "Empty", Vec::new()), Some(1)), "Empty\n\n");
    }

    #[test]
    fn sentences_break_at_blanks() {
        assert_eq!(sentence("  one two three", None), "  one two three\n");
        assert_eq!(sentence("  one two three", Some(10)), "  one two\n      three\n");
        assert_eq!(sentence("unbreakable", Some(3)), "unbreakable\n");
    }
}
