//! Columns that line up, as plain text to be pasted into a document.

use std::fmt;
use std::time::Duration;

/// A table: the first column to the left, the others to the right.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self {
            rows: vec![headings.iter().map(|text| (*text).to_owned()).collect()],
        }
    }

    /// Adds a row; missing cells at its end are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds an empty line.
    pub(crate) fn gap(&mut self) {
        self.rows.push(Vec::new());
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell: &String| cell.chars().count()).max()
        };
        (0..columns)
            .map(|column| width(column).unwrap_or_default())
            .collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate();
            let line: String = cells
                .map(|(column, (cell, width))| match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                })
                .collect();
            writeln!(formatter, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Milliseconds as FOLIO prints them.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

/// A share as FOLIO prints it.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// A number that is mostly whole: no digits after the point if there is nothing to show.
pub(crate) fn count(number: f64) -> String {
    if (number - number.round()).abs() < 0.005 {
        format!("{number:.0}")
    } else {
        format!("{number:.1}")
    }
}
