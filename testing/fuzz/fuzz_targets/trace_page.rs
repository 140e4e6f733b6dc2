//! Any bytes as pages of the kernel's trace buffer, under any event's format: no panic, and every event on the stream's
//! CPU.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_iotrace::collect::decode::{Decoder, Stream};
use stentor_iotrace::collect::format::{Format, page_layout};
use stentor_iotrace::collect::page::Layout;

fuzz_target!(|input: (&str, &str, Vec<&[u8]>)| {
    let (head, text, pages) = input;
    let layout = page_layout(head).unwrap_or(Layout::default());
    let Some(format) = Format::parse(text) else { return };
    let names: Vec<&str> = format.fields.iter().map(|field| field.name.as_str()).collect();
    let mut decoder = Decoder::new(layout, &names);
    decoder.add("any/event", &format);
    let mut stream = Stream { cpu: 1, ..Stream::default() };
    for page in &pages {
        stream.push(page);
    }
    let trace = decoder.decode(&[stream]);
    assert!(trace.events.iter().all(|event| event.cpu == 1 && event.kind == 0));
    assert!(trace.events.windows(2).all(|pair| pair[0].ns <= pair[1].ns));
});
