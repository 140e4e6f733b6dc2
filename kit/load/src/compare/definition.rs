//! The definition of a contestant: a TOML file, or an option's `name=...,target=...`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

const READY_S_MAX: f64 = 60.0;
/// What is known without a file.
pub const BUILT_IN: [(&str, &str); 2] = [
    ("stentor", include_str!("../../../../examples/compare/stentor.toml")),
    ("postfix", include_str!("../../../../examples/compare/postfix.toml")),
];

/// One server. In `target`, `start`, `stop`, `files` and environments these are replaced: `{dir}` (a folder of its own
/// on the queue's directory), `{port}` (a free one), `{sink_host}`, `{sink_port}` (where all mail must go) and
/// `{stentor}` (the program). `prepare` has them as variables: `$DIR`, `$PORT`, `$SINK_HOST`, `$SINK_PORT`, `$STENTOR`.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Definition {
    pub name: String,
    /// Where it takes mail; by default `127.0.0.1:{port}`.
    pub target: String,
    /// Programs that must be there.
    pub needs: Vec<String>,
    pub needs_root: bool,
    /// Written before the start, by their paths within `{dir}`.
    pub files: BTreeMap<String, String>,
    /// For `/bin/sh`, after the files and before the start.
    pub prepare: String,
    /// The command that stays in the foreground. Without one it runs already.
    pub start: Vec<String>,
    /// The command that ends it; by default it gets SIGTERM.
    pub stop: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Until its greeting.
    pub ready_s_max: f64,
    /// How it runs without syncs. Without it there is no such run.
    pub nosync: Option<NoSync>,
    /// Of one that runs already: the root of its process tree, or the control group that it lives in.
    pub pid: Option<u32>,
    pub cgroup: Option<PathBuf>,
    /// Of one that runs already: where its queue is, for the file system and the device.
    pub queue: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NoSync {
    /// Beside the other.
    pub environment: BTreeMap<String, String>,
    /// In place of `start`.
    pub start: Vec<String>,
    /// Over those of the same path.
    pub files: BTreeMap<String, String>,
}

impl Definition {
    /// A built-in name, or a file.
    pub fn load(name: &str) -> Result<Definition, String> {
        let built_in = BUILT_IN.iter().find(|(known, _)| *known == name);
        let text = match built_in {
            Some((_, text)) => (*text).to_owned(),
            None => std::fs::read_to_string(name).map_err(|error| {
                let known = BUILT_IN.map(|(known, _)| known).join(", ");
                format!("{name}: {error}; give a contestant file or one of {known}")
            })?,
        };
        Definition::parse(&text).map_err(|error| format!("{name}: {error}"))
    }

    pub fn parse(text: &str) -> Result<Definition, String> {
        let definition: Definition = toml::from_str(text).map_err(|error| error.to_string())?;
        definition.checked()
    }

    /// `name=postfix,target=127.0.0.1:25,pid=1234`; `command=` comes last and may have commas.
    pub fn from_option(text: &str) -> Result<Definition, String> {
        let mut definition = Definition::default();
        let mut rest = text;
        while !rest.is_empty() {
            let (key, value) = rest.split_once('=').ok_or_else(|| format!("{rest}: write it as KEY=VALUE"))?;
            let (value, next) = match key {
                "command" => (value, ""),
                _ => value.split_once(',').unwrap_or((value, "")),
            };
            rest = next;
            match key {
                "name" => value.clone_into(&mut definition.name),
                "target" => value.clone_into(&mut definition.target),
                "pid" => {
                    definition.pid = Some(value.parse().map_err(|_| format!("{value} is not a valid process ID"))?);
                }
                "cgroup" => definition.cgroup = Some(value.into()),
                "queue" => definition.queue = Some(value.into()),
                "command" => definition.start = ["/bin/sh", "-c", value].map(str::to_owned).to_vec(),
                "nosync" => {
                    let (name, value) = value
                        .split_once('=')
                        .ok_or_else(|| format!("nosync={value}: write it as nosync=LD_PRELOAD=libeatmydata.so"))?;
                    let environment = BTreeMap::from([(name.to_owned(), value.to_owned())]);
                    definition.nosync = Some(NoSync { environment, ..NoSync::default() });
                }
                _ => return Err(format!("{key}: unknown; use name, target, pid, cgroup, queue, nosync, command")),
            }
        }
        definition.checked()
    }

    fn checked(mut self) -> Result<Definition, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || !self.name.chars().all(is_plain) {
            return Err(format!("name {:?}: use letters, digits, - and _", self.name));
        }
        if self.ready_s_max <= 0.0 {
            self.ready_s_max = READY_S_MAX;
        }
        if self.start.is_empty() {
            if self.target.is_empty() || self.target.contains('{') {
                return Err(format!("{}: needs a command to start, or the target of a running server", self.name));
            }
            if self.nosync.is_some() {
                return Err(format!("{}: syncs can be switched off only if it is started here", self.name));
            }
        } else if self.pid.is_some() || self.cgroup.is_some() {
            return Err(format!("{}: pid and cgroup are only for a running server", self.name));
        }
        if self.target.is_empty() {
            "127.0.0.1:{port}".clone_into(&mut self.target);
        }
        let outside = |path: &&String| Path::new(path).is_absolute() || path.contains("..");
        if let Some(path) = self.files.keys().find(outside) {
            return Err(format!("{}: the file {path} is outside its folder", self.name));
        }
        Ok(self)
    }

    /// Why it cannot run here.
    pub fn obstacle(&self, values: &Values) -> Option<String> {
        if self.needs_root && !rustix::process::geteuid().is_root() {
            return Some(format!("{} must be started as root", self.name));
        }
        let missing = self.needs.iter().find(|program| !is_program(program));
        if let Some(program) = missing {
            return Some(format!("{} needs {program}, which is not installed", self.name));
        }
        let uses = self.start.iter().any(|word| word.contains("{stentor}"));
        if uses && !is_program(&values.stentor) {
            return Some(format!("{}: {} is not a program; set --stentor", self.name, values.stentor));
        }
        None
    }
}

fn is_program(name: &str) -> bool {
    let is_file = |path: &Path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
    if name.contains('/') {
        return is_file(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|folder| is_file(&folder.join(name)))
}

/// What stands for the names in braces.
#[derive(Clone, Debug, Default)]
pub struct Values {
    pub dir: String,
    pub port: String,
    pub sink_host: String,
    pub sink_port: String,
    pub stentor: String,
}

impl Values {
    fn pairs(&self) -> [(&'static str, &str); 5] {
        [
            ("dir", &self.dir),
            ("port", &self.port),
            ("sink_host", &self.sink_host),
            ("sink_port", &self.sink_port),
            ("stentor", &self.stentor),
        ]
    }

    /// Other braces stay.
    pub fn fill(&self, text: &str) -> String {
        self.pairs().iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    pub fn environment(&self) -> Vec<(String, String)> {
        self.pairs().iter().map(|(name, value)| (name.to_ascii_uppercase(), (*value).to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_is_accepted() {
        for (name, _) in BUILT_IN {
            let definition = Definition::load(name).unwrap();
            assert_eq!(definition.name, name);
            assert!(definition.nosync.is_some() && !definition.start.is_empty(), "{definition:?}");
        }
        let values = Values { dir: "/q".to_owned(), port: "25".to_owned(), ..Values::default() };
        assert_eq!(values.fill("{dir}/x:{port} {other}"), "/q/x:25 {other}");
    }

    #[test]
    fn options_name_servers_that_run() {
        let given = Definition::from_option("name=exim,target=127.0.0.1:2500,pid=77").unwrap();
        assert_eq!((given.pid, given.target.as_str()), (Some(77), "127.0.0.1:2500"));
        let own = Definition::from_option("name=x,nosync=A=b,command=serve -p {port}, --fast").unwrap();
        assert_eq!(own.start[2], "serve -p {port}, --fast");
        assert_eq!(own.target, "127.0.0.1:{port}");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, why) in [
            ("name=a b,target=x:1", "letters"),
            ("name=a", "needs a command"),
            ("target", "KEY=VALUE"),
            ("name=a,target=x:1,color=red", "unknown"),
            ("name=a,target=x:1,pid=one", "process ID"),
            ("name=a,target=x:1,nosync=A=b", "only if"),
        ] {
            let error = Definition::from_option(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(Definition::parse("name = 'a'\nstart = ['x']\nsurprise = 1").unwrap_err().contains("surprise"));
        let outside = "name = 'a'\nstart = ['x']\n[files]\n'../x' = ''";
        assert!(Definition::parse(outside).unwrap_err().contains("outside"));
    }
}
