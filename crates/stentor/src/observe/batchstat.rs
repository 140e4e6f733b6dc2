//! `stentor batchstat`: the picture of a day.
