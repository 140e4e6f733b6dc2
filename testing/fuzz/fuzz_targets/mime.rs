//! Any message: no panic, the same parts and texts however it is cut, and every part that begins ends.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use stentor_mime::charset::Charset;
use stentor_mime::guess::Reading;
use stentor_mime::walk::{Defect, Part, Visitor, Walker};
use stentor_mime::words;

#[derive(Default, PartialEq, Debug)]
struct Told {
    open: Vec<Vec<u32>>,
    parts: usize,
    defects: BTreeSet<Defect>,
    files: Vec<(String, u64)>,
    text: String,
}

impl Visitor for Told {
    fn field(&mut self, _: &[u32], _: &[u8], value: &[u8], fallback: Charset) {
        self.text.push_str(&words::decode(value, fallback).text);
    }

    fn part(&mut self, part: &Part) {
        self.parts += 1;
        self.open.push(part.path.clone());
        self.text.extend(part.names.iter().map(String::as_str));
    }

    fn text(&mut self, part: &Part, text: &str) {
        assert_eq!(self.open.last(), Some(&part.path));
        self.text.push_str(text);
    }

    fn file(&mut self, part: &Part, name: &str, size: u64) {
        assert_eq!(self.open.last(), Some(&part.path));
        self.files.push((name.to_owned(), size));
    }

    fn defect(&mut self, _: &[u32], defect: Defect) {
        self.defects.insert(defect);
    }

    fn end(&mut self, part: &Part, _: u64) {
        assert_eq!(self.open.pop().as_ref(), Some(&part.path));
    }
}

fn told<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Told {
    let (mut walker, mut told) = (Walker::new(), Told::default());
    pieces.for_each(|piece| walker.push(piece, &mut told));
    walker.finish(&mut told);
    assert!(told.open.is_empty());
    told
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, message)) = data.split_first() else { return };
    assert_eq!(told(message.chunks(usize::from(cut) + 1)), told(std::iter::once(message)));
    Reading::of(message, None, None);
});
