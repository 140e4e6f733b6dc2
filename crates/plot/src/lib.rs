//! Charts of mail as SVG and PNG: the same picture for the command line, the console and reports.
//!
//! Promise: no files, no clock, no fonts of the system; what is drawn depends on what is given alone.
