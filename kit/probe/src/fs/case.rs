//! The cycles to measure.

use clap::ValueEnum;

use super::FsArgs;
use crate::trouble::show_bytes;

const SIZE_BYTES: u64 = 4096;
/// As many as `probe log` has writers, so that the two can be compared.
const PROCESSES: u32 = 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Names {
    /// Each file is created and removed.
    New,
    /// Files of a pool are overwritten in place and given back.
    Reused,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sync {
    /// Nothing: the kernel writes when it likes.
    None,
    /// The file, after it is written.
    File,
    /// Its directory, after it is created.
    Directory,
    /// Both of these: what must be durable before 250.
    Both,
    /// Both, and the directory again after each rename and after the end.
    Every,
}

impl Sync {
    pub fn file(self) -> bool {
        matches!(self, Sync::File | Sync::Both | Sync::Every)
    }

    pub fn directory(self) -> bool {
        matches!(self, Sync::Directory | Sync::Both | Sync::Every)
    }

    pub fn name(self) -> &'static str {
        match self {
            Sync::None => "none",
            Sync::File => "file",
            Sync::Directory => "directory",
            Sync::Both => "both",
            Sync::Every => "every",
        }
    }
}

impl Names {
    pub fn name(self) -> &'static str {
        match self {
            Names::New => "new",
            Names::Reused => "reused",
        }
    }
}

/// A way to keep a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    pub names: Names,
    pub hash_depth: u32,
    pub size: u64,
    pub processes: u32,
    pub sync: Sync,
}

impl Case {
    const PLAIN: Case = Case { names: Names::New, hash_depth: 0, size: SIZE_BYTES, processes: 1, sync: Sync::Both };

    /// `new, flat, 4K, 1 process, sync both`.
    pub fn name(&self) -> String {
        let hashed = match self.hash_depth {
            0 => "flat".to_owned(),
            depth => format!("hashed {depth}"),
        };
        let processes = if self.processes == 1 { "process" } else { "processes" };
        format!(
            "{}, {hashed}, {}, {} {processes}, sync {}",
            self.names.name(),
            show_bytes(self.size),
            self.processes,
            self.sync.name()
        )
    }
}

/// Without a choice a few that answer the common questions; else all combinations of what was chosen.
pub fn chosen(args: &FsArgs) -> Vec<Case> {
    let plain = Case::PLAIN;
    if args.size.is_empty()
        && args.processes.is_empty()
        && args.hash_depth.is_empty()
        && args.names.is_empty()
        && args.sync.is_empty()
    {
        return vec![
            Case { sync: Sync::None, ..plain },
            Case { sync: Sync::File, ..plain },
            plain,
            Case { names: Names::Reused, ..plain },
            Case { hash_depth: 1, ..plain },
            Case { processes: PROCESSES, ..plain },
        ];
    }
    let or = |list: &[u32], one: u32| if list.is_empty() { vec![one] } else { list.to_vec() };
    let sizes = if args.size.is_empty() { vec![plain.size] } else { args.size.clone() };
    let names = if args.names.is_empty() { vec![plain.names] } else { args.names.clone() };
    let syncs = if args.sync.is_empty() { vec![Sync::None, Sync::Both] } else { args.sync.clone() };
    let mut cases = Vec::new();
    for &names in &names {
        for &hash_depth in &or(&args.hash_depth, plain.hash_depth) {
            for &size in &sizes {
                for &processes in &or(&args.processes, plain.processes) {
                    cases.extend(syncs.iter().map(|&sync| Case { names, hash_depth, size, processes, sync }));
                }
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: FsArgs,
    }

    fn cases(line: &str) -> Vec<Case> {
        chosen(&Line::parse_from(line.split_whitespace()).args)
    }

    #[test]
    fn a_few_by_default_and_all_combinations_on_request() {
        let few = cases("fs");
        assert!((4..=8).contains(&few.len()) && few.contains(&Case::PLAIN), "{few:?}");
        let all = cases("fs --size 512,4K --processes 1,2,8 --sync none,file --names new,reused");
        assert_eq!(all.len(), 24);
        let texts: Vec<String> = all.iter().map(Case::name).collect();
        assert!(texts.iter().enumerate().all(|(at, text)| !texts[..at].contains(text)));
        assert_eq!(texts[0], "new, flat, 512, 1 process, sync none");
        assert_eq!(cases("fs --hash-depth 2").len(), 2);
        assert!(Sync::Both.file() && Sync::Both.directory() && !Sync::File.directory() && !Sync::Directory.file());
    }
}
