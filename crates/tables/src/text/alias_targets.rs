//! What an alias file's values say, as far as it can be seen when the file is read: files that they include, values that cannot be
//! parsed, names that lead back to themselves.
//!
//! Promise: included files are read with the file, those that they include too, each once. Everything wrong is a warning: the
//! other aliases are of use.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use stentor_addresses::{Target, parse, parse_include};

use crate::diagnostic::{FileReport, Problem};
use crate::keyed::Keyed;

/// Files that an alias file includes: their content, or why there is none.
pub(crate) type Includes = HashMap<String, Result<String, String>>;

/// How deep aliases and included files may nest.
const DEPTH_MAX: usize = 50;
/// Included files of one alias file.
const INCLUDES_MAX: usize = 10_000;

type Read<'r> = &'r mut dyn FnMut(&Path) -> Result<Vec<u8>, String>;

/// Names that an alias stands for, and its line.
type Names = HashMap<String, (u32, Vec<String>)>;

/// Reports what is wrong, and gives the included files.
pub(crate) fn check(keyed: &Keyed, read: Read<'_>, report: &mut FileReport<'_>) -> Includes {
    let mut entries: Vec<_> = keyed.entries().collect();
    entries.sort_unstable_by_key(|entry| entry.line);
    let (mut includes, mut names) = (Includes::new(), Names::new());
    for entry in entries {
        let targets = match parse(&String::from_utf8_lossy(entry.value)) {
            Ok(targets) => targets,
            Err(error) => {
                report.add(entry.line, Problem::BadAlias(error.to_string()));
                continue;
            }
        };
        let own: Vec<String> = targets.iter().filter_map(name).collect();
        if !own.is_empty() {
            names.insert(String::from_utf8_lossy(entry.key).into_owned(), (entry.line, own));
        }
        for target in &targets {
            if let Target::Include(path) = target {
                include(path, 0, &mut includes, read, (entry.line, report));
            }
        }
    }
    loops(&names, report);
    includes
}

/// Whether an alias or an included file names a program, or a file that is not `/dev/null`.
pub(crate) fn has_programs(keyed: &Keyed, includes: &Includes) -> bool {
    let is_program = |target: &Target| match target {
        Target::Program(_) => true,
        Target::File(path) => path != "/dev/null",
        _ => false,
    };
    let any = |targets: Vec<Target>| targets.iter().any(is_program);
    let mut values = keyed.entries().map(|entry| parse(&String::from_utf8_lossy(entry.value)));
    let mut texts = includes.values().filter_map(|content| content.as_deref().ok());
    values.any(|targets| targets.is_ok_and(any)) || texts.any(|text| parse_include(text).is_ok_and(any))
}

/// A name that is looked up among the aliases.
fn name(target: &Target) -> Option<String> {
    match target {
        Target::Address(name) if !name.contains('@') => Some(name.to_lowercase()),
        _ => None,
    }
}

fn include(path: &str, depth: usize, all: &mut Includes, read: Read<'_>, (line, report): (u32, &mut FileReport<'_>)) {
    if all.contains_key(path) {
        return;
    }
    let content = if depth >= DEPTH_MAX || all.len() >= INCLUDES_MAX {
        Err("too many files include each other".to_owned())
    } else {
        read(Path::new(path)).and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned()))
    };
    let inner = match content.as_deref().map(parse_include) {
        Ok(Ok(targets)) => targets,
        Ok(Err((at, error))) => {
            report.add(line, Problem::BadAlias(format!("{path}:{at}: {error}")));
            Vec::new()
        }
        Err(why) => {
            report.add(line, Problem::Include { path: path.to_owned(), why: why.to_owned() });
            Vec::new()
        }
    };
    all.insert(path.to_owned(), content);
    for target in inner {
        if let Target::Include(path) = target {
            include(&path, depth + 1, all, read, (line, report));
        }
    }
}

/// Reports names that lead back to themselves through others. One that stands for itself is meant so.
fn loops(names: &Names, report: &mut FileReport<'_>) {
    let mut begins: Vec<(&u32, &String)> = names.iter().map(|(name, (line, _))| (line, name)).collect();
    begins.sort_unstable();
    let mut walk = Loops { names, done: HashSet::new(), path: Vec::new(), found: Vec::new() };
    for (_, name) in begins {
        walk.follow(name);
    }
    for (line, text) in walk.found {
        report.add(line, Problem::BadAlias(text));
    }
}

struct Loops<'n> {
    names: &'n Names,
    /// Names that have been followed to their end.
    done: HashSet<&'n str>,
    path: Vec<&'n str>,
    found: Vec<(u32, String)>,
}

impl<'n> Loops<'n> {
    fn follow(&mut self, name: &'n str) {
        let Some((line, targets)) = self.names.get(name) else { return };
        if self.done.contains(name) {
            return;
        }
        if self.path.len() >= DEPTH_MAX {
            self.found.push((*line, format!("aliases nest deeper than {DEPTH_MAX} at {name}")));
            return;
        }
        self.path.push(name);
        for target in targets.iter().filter(|target| *target != name) {
            match self.path.iter().position(|step| step == target) {
                Some(begin) => {
                    let way = self.path[begin..].join(" -> ");
                    self.found.push((*line, format!("loop: {way} -> {target}")));
                }
                None => self.follow(target),
            }
        }
        self.path.pop();
        self.done.insert(name);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, Reference, load};

    fn findings(text: &str) -> Vec<String> {
        let mut read = |path: &std::path::Path| match path.to_str() {
            Some("/aliases") => Ok(text.as_bytes().to_vec()),
            Some("/staff") => Ok(b"# all\nann@a.test, :include:/more\n".to_vec()),
            Some("/more") => Ok(b":include:/staff\n<ab\n".to_vec()),
            _ => Err("no such file".to_owned()),
        };
        let reference = Reference::File { format: Format::Aliases, path: "/aliases".into() };
        let loaded = load(&reference, &mut read).unwrap();
        for path in ["/staff", "/more"] {
            let is_read = matches!(loaded.table.included(path), Some(Ok(_)));
            assert_eq!(is_read, text.contains("/staff"), "{path}");
        }
        assert_eq!(loaded.table.included("/other"), None);
        loaded.report.diagnostics.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn included_files_are_read_with_the_file() {
        assert_eq!(
            findings("all: :include:/staff\nsome: :include:/staff, :include:/none\n"),
            [
                "/aliases:1: warning: /more:2: an angle bracket is not closed in \"<ab\"; mail for it is deferred",
                "/aliases:2: warning: /none cannot be read: no such file; mail for it is deferred",
            ]
        );
    }

    #[test]
    fn programs_are_seen_wherever_they_are() {
        let has = |text: &str| {
            let mut read = |path: &std::path::Path| match path.to_str() {
                Some("/aliases") => Ok(text.as_bytes().to_vec()),
                Some("/staff") => Ok(b"ann@a.test, |/bin/x\n".to_vec()),
                _ => Err("no such file".to_owned()),
            };
            let reference = Reference::File { format: Format::Aliases, path: "/aliases".into() };
            load(&reference, &mut read).unwrap().table.has_programs()
        };
        assert!(has("a: b\nc: d, |/bin/x\n") && has("a: /var/mail/x\n") && has("a: :include:/staff\n"));
        assert!(!has("a: b, /dev/null\nc: :include:/none\n"));
    }

    #[test]
    fn loops_and_bad_values_are_found_when_the_file_is_read() {
        assert_eq!(
            findings("a: b\nb: c, x@y.test\nC: a\nself: self, x@y.test\nbad: <ab\nfine: a\n"),
            [
                "/aliases:5: warning: an angle bracket is not closed in \"<ab\"; mail for it is deferred",
                "/aliases:3: warning: loop: a -> b -> c -> a; mail for it is deferred",
            ]
        );
        let deep: Vec<String> = (0..60).map(|n| format!("n{n}: n{}\n", n + 1)).collect();
        assert_eq!(findings(&deep.concat()).len(), 1);
    }
}
