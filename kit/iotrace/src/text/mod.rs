//! Reads traces made by others: the text of `trace-cmd report`, and of ftrace's own `trace` file, of the
//! `function_graph` tracer and of tracepoints.
//!
//! `line` classifies a line, `graph` follows calls and attributes their time, `totals` adds up, `report` makes tables.
//! The format is that of the kernel's `Documentation/trace/ftrace.rst` ("function graph tracer") and of trace-cmd's
//! `fgraph` handlers; lines in other forms are counted and skipped.
//!
//! Promise: any bytes are read without a panic; memory is bounded by the depth of calls and the number of names.

pub mod graph;
pub mod line;
pub mod report;
pub mod totals;

use std::io::{self, BufRead};

pub use totals::Totals;

/// What is longer is no line of a trace: the rest of it is passed over.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Totals of a text.
pub fn read(mut source: impl BufRead) -> io::Result<Totals> {
    let mut graph = graph::Graph::default();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let mut limited = io::Read::take(&mut source, LINE_BYTES_MAX as u64);
        if limited.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(graph.finish());
        }
        if bytes.last() != Some(&b'\n') {
            source.skip_until(b'\n')?;
        }
        graph.line(String::from_utf8_lossy(&bytes).trim_end());
    }
}

#[cfg(test)]
mod tests;
