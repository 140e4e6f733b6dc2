//! Pages of the kernel's ring buffer as `trace_pipe_raw` gives them (`Documentation/trace/ring-buffer-design.rst` and
//! `include/linux/ring_buffer.h`), in the byte order of this machine, which must be little-endian.
//!
//! Promise: any bytes are read without a panic; what does not fit ends the page.

/// Where a page's parts are: `events/header_page`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub commit_at: usize,
    pub commit_bytes: usize,
    pub data_at: usize,
    pub data_bytes: usize,
}

impl Layout {
    /// Of a whole page: as much is read at a time.
    pub fn page_bytes(&self) -> usize {
        self.data_at.saturating_add(self.data_bytes)
    }
}

impl Default for Layout {
    /// Of a 64-bit kernel with pages of 4 KiB.
    fn default() -> Layout {
        Layout { commit_at: 8, commit_bytes: 8, data_at: 16, data_bytes: 4080 }
    }
}

/// Of the commit word: events were lost before this page.
const MISSED: u64 = 1 << 31;
/// Their number is behind the page's data.
const MISSED_STORED: u64 = 1 << 30;
const COMMIT_MASK: u64 = (1 << 30) - 1;

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// An absolute stamp has 59 bits; those above are of the time before.
const STAMP_MASK: u64 = (1 << 59) - 1;

/// The number of octets at `at`, little-endian; None beyond the end or of an odd size.
pub fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(size)?)?;
    match size {
        1 => Some(u64::from(part[0])),
        2 => part.try_into().ok().map(|octets| u64::from(u16::from_le_bytes(octets))),
        4 => part.try_into().ok().map(|octets| u64::from(u32::from_le_bytes(octets))),
        8 => part.try_into().ok().map(u64::from_le_bytes),
        _ => None,
    }
}

/// How much of a page means something: what is behind need not be kept.
pub fn used_bytes(bytes: &[u8], layout: &Layout) -> usize {
    let commit = number(bytes, layout.commit_at, layout.commit_bytes).unwrap_or(0);
    let stored = if commit & MISSED_STORED == 0 { 0 } else { 8 };
    bytes.len().min(layout.data_at.saturating_add((commit & COMMIT_MASK) as usize).saturating_add(stored))
}

/// The events of one page.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    data: &'a [u8],
    at: usize,
    ns: u64,
    /// Events lost just before this page; at least 1 if the kernel does not say how many.
    pub missed: u64,
}

impl<'a> Page<'a> {
    /// None if there is not even a header.
    pub fn new(bytes: &'a [u8], layout: &Layout) -> Option<Page<'a>> {
        let ns = number(bytes, 0, 8)?;
        let commit = number(bytes, layout.commit_at, layout.commit_bytes)?;
        let data = bytes.get(layout.data_at..)?;
        let committed = ((commit & COMMIT_MASK) as usize).min(data.len());
        let missed = match (commit & MISSED != 0, commit & MISSED_STORED != 0) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => number(data, committed, 8).unwrap_or(1).max(1),
        };
        Some(Page { data: &data[..committed], at: 0, ns, missed })
    }
}

impl<'a> Iterator for Page<'a> {
    /// The time, and the bytes of the event from its `common_type` on (perhaps with some of padding behind).
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let head = number(self.data, self.at, 4)? as u32;
            let (kind, delta) = (head & 31, u64::from(head >> 5));
            let word = || number(self.data, self.at + 4, 4);
            let (payload_at, length) = match kind {
                // Nothing more on this page.
                TYPE_PADDING if delta == 0 => return None,
                TYPE_PADDING => {
                    self.ns = self.ns.wrapping_add(delta);
                    // At least its own length word, so that each step goes on.
                    self.at = self.at.checked_add(4)?.checked_add((word()? as usize).max(4))?;
                    continue;
                }
                TYPE_TIME_EXTEND | TYPE_TIME_STAMP => {
                    let wide = (word()? << DELTA_BITS) + delta;
                    self.ns = if kind == TYPE_TIME_EXTEND {
                        self.ns.wrapping_add(wide)
                    } else {
                        (self.ns & !STAMP_MASK) | (wide & STAMP_MASK)
                    };
                    self.at += 8;
                    continue;
                }
                0 => (8, (word()? as usize).checked_sub(4)?),
                words => (4, words as usize * 4),
            };
            let start = self.at.checked_add(payload_at)?;
            let end = start.checked_add(length)?;
            let payload = self.data.get(start..end)?;
            self.ns = self.ns.wrapping_add(delta);
            self.at = end.checked_add(3)? & !3;
            return Some((self.ns, payload));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(kind: u32, delta: u32) -> [u8; 4] {
        (kind | delta << 5).to_le_bytes()
    }

    fn page(commit_flags: u64, data: &[u8], behind: &[u8]) -> Vec<u8> {
        let mut bytes = 1_000_u64.to_le_bytes().to_vec();
        bytes.extend((data.len() as u64 | commit_flags).to_le_bytes());
        bytes.extend(data);
        bytes.extend(behind);
        bytes.resize(4096.max(bytes.len()), 0);
        bytes
    }

    fn read(bytes: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64) {
        let page = Page::new(bytes, &Layout::default()).unwrap();
        let missed = page.missed;
        (page.map(|(ns, payload)| (ns, payload.to_vec())).collect(), missed)
    }

    #[test]
    fn each_type_of_entry() {
        let mut data = Vec::new();
        // 8 octets, 5 ns later.
        data.extend(head(2, 5));
        data.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        // 2^27 * 3 + 7 ns later.
        data.extend(head(30, 7));
        data.extend(3_u32.to_le_bytes());
        // Its length in a word of its own: 4 + 5 octets, rounded up.
        data.extend(head(0, 1));
        data.extend(9_u32.to_le_bytes());
        data.extend([9, 9, 9, 9, 9, 0, 0, 0]);
        // A discarded one of 8 octets behind its head, 2 ns later.
        data.extend(head(29, 2));
        data.extend(8_u32.to_le_bytes());
        data.extend([0xff; 4]);
        // Absolute.
        data.extend(head(31, 4));
        data.extend(100_u32.to_le_bytes());
        data.extend(head(1, 0));
        data.extend([7, 7, 7, 7]);
        data.extend(head(29, 0));
        data.extend([0xee; 12]);
        let (events, missed) = read(&page(0, &data, &[]));
        let second = 1_005 + 3 * (1 << 27) + 7 + 1;
        assert_eq!(
            events,
            vec![(1_005, vec![1, 2, 3, 4, 5, 6, 7, 8]), (second, vec![9; 5]), (100 * (1 << 27) + 4, vec![7; 4]),]
        );
        assert_eq!(missed, 0);
    }

    #[test]
    fn losses_are_in_the_commit_word() {
        let mut data = head(1, 1).to_vec();
        data.extend([1, 1, 1, 1]);
        assert_eq!(read(&page(MISSED, &data, &[])).1, 1);
        let (events, missed) = read(&page(MISSED | MISSED_STORED, &data, &77_u64.to_le_bytes()));
        assert_eq!((events.len(), missed), (1, 77));
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some(page) = Page::new(&bytes, &Layout::default()) {
                prop_assert!(page.count() <= bytes.len());
            }
        }

        /// Heads that need not be in step with the entries: lengths may point anywhere.
        #[test]
        fn any_entries_end(words in proptest::collection::vec((0_u32..32, 0_u32..4, 0_u32..40), 0..100)) {
            let data: Vec<u8> = words
                .iter()
                .flat_map(|&(kind, delta, word)| [head(kind, delta), word.to_le_bytes()].concat())
                .collect();
            prop_assert!(read(&page(0, &data, &[])).0.len() <= data.len() / 4);
        }

        /// What a kernel writes comes back: each event with its time, whatever stands between them.
        #[test]
        fn a_page_of_whole_entries_is_read_as_it_was_written(entries in proptest::collection::vec(entry(), 0..60)) {
            let (mut data, mut ns, mut expected) = (Vec::new(), 1_000_u64, Vec::new());
            for entry in &entries {
                entry.write(&mut data);
                if data.len() > Layout::default().data_bytes {
                    break;
                }
                ns = entry.time_after(ns);
                expected.extend(entry.payload().map(|payload| (ns, payload)));
                prop_assert_eq!(&read(&page(0, &data, &[])).0, &expected);
            }
        }
    }

    /// An entry as the kernel writes it; times in nanoseconds, sizes in octets.
    #[derive(Clone, Debug)]
    enum Entry {
        /// Its length, a multiple of 4, is in the head.
        Short {
            delta: u32,
            words: u32,
        },
        /// Its length is in a word of its own.
        Long {
            delta: u32,
            bytes: u32,
        },
        Discarded {
            delta: u32,
            words: u32,
        },
        TimeExtend {
            delta: u32,
            high: u32,
        },
        TimeStamp {
            low: u32,
            high: u32,
        },
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let delta = 0_u32..1 << DELTA_BITS;
        prop_oneof![
            4 => (delta.clone(), 1_u32..=28).prop_map(|(delta, words)| Entry::Short { delta, words }),
            2 => (delta.clone(), 1_u32..400).prop_map(|(delta, bytes)| Entry::Long { delta, bytes }),
            // A null head of padding ends a page, so a discarded event has a time of its own.
            1 => (1_u32..1 << DELTA_BITS, 1_u32..30).prop_map(|(delta, words)| Entry::Discarded { delta, words }),
            1 => (delta.clone(), any::<u32>()).prop_map(|(delta, high)| Entry::TimeExtend { delta, high }),
            1 => (delta, any::<u32>()).prop_map(|(low, high)| Entry::TimeStamp { low, high }),
        ]
    }

    impl Entry {
        fn write(&self, data: &mut Vec<u8>) {
            match *self {
                Entry::Short { delta, words } => data.extend(head(words, delta)),
                Entry::Long { delta, bytes } => {
                    data.extend(head(0, delta));
                    data.extend((bytes + 4).to_le_bytes());
                }
                Entry::Discarded { delta, words } => {
                    data.extend(head(TYPE_PADDING, delta));
                    data.extend((words * 4).to_le_bytes());
                    // The length counts its own word; the rest would be heads, if it were read.
                    data.resize(data.len() + words as usize * 4 - 4, 0xff);
                }
                Entry::TimeExtend { delta, high } => {
                    data.extend(head(TYPE_TIME_EXTEND, delta));
                    data.extend(high.to_le_bytes());
                }
                Entry::TimeStamp { low, high } => {
                    data.extend(head(TYPE_TIME_STAMP, low));
                    data.extend(high.to_le_bytes());
                }
            }
            data.extend(self.payload().unwrap_or_default());
            data.resize(data.len().next_multiple_of(4), 0xff);
        }

        fn time_after(&self, ns: u64) -> u64 {
            match *self {
                Entry::Short { delta, .. } | Entry::Long { delta, .. } | Entry::Discarded { delta, .. } => {
                    ns + u64::from(delta)
                }
                Entry::TimeExtend { delta, high } => ns + u64::from(delta) + (u64::from(high) << DELTA_BITS),
                Entry::TimeStamp { low, high } => {
                    (ns >> 59 << 59) + ((u64::from(low) + (u64::from(high) << DELTA_BITS)) % (1 << 59))
                }
            }
        }

        fn payload(&self) -> Option<Vec<u8>> {
            match *self {
                Entry::Short { words, .. } => Some(vec![0xff; words as usize * 4]),
                Entry::Long { bytes, .. } => Some(vec![0xff; bytes as usize]),
                _ => None,
            }
        }
    }
}
