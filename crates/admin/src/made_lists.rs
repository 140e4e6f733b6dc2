//! `stentor list`: makes, changes and deletes lists, each with a file of its own in the data folder.
//!
//! Promise: a list is in force and durable when the command ends, or nothing has changed. The file is written first;
//! the reload checks it as any configuration, and if it is refused, the file gets its former text again. One change at
//! a time. Lists of the configuration file are left to whoever edits it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use stentor_config::list_files::{self, ListFileError};
use stentor_control::format::plural;
use stentor_control::{ControlReply, ErrorCode, ListChange, ListName, ListOverview, ListTable, NewList, Problem};
use stentor_core::Core;
use stentor_lists::PostingPolicy;
use toml::{Table, Value};

use crate::lists;

/// Age at which undelivered copies of a post expire.
const EXPIRE_S: i64 = 86_400;
/// Posts that wait for a subscriber before they become a digest.
const COALESCE_OVER: i64 = 3;

/// The new keys of a list; `None`: it is deleted.
pub(crate) struct ListEdit {
    pub name: String,
    keys: Option<Table>,
    before: Option<Table>,
}

impl ListEdit {
    pub fn create(core: &Core, new: NewList) -> Result<ListEdit, Problem> {
        let NewList { name, address, owner, style, set } = new;
        let settings = core.settings();
        if settings.list(&name).is_some() {
            return Err(bad(format!("there is a list {name} already; `stentor list set {name} KEY=VALUE` changes it")));
        }
        let before = list_files::keys(&settings.config.data_dir, &name).map_err(|error| failed(&error))?;
        let mut keys = styled(style.as_deref().unwrap_or("discussion"), &owner)?;
        keys.insert("address".to_owned(), Value::String(address));
        keys.insert("owner".to_owned(), Value::String(owner));
        if settings.config.http.link_base.is_some() {
            keys.insert("one_click".to_owned(), Value::Boolean(true));
        }
        assign(&mut keys, &set)?;
        Ok(ListEdit { name, keys: Some(keys), before })
    }

    pub fn set(core: &Core, change: ListChange) -> Result<ListEdit, Problem> {
        let ListChange { name, set, unset } = change;
        if set.is_empty() && unset.is_empty() {
            return Err(bad("no key to change was given: KEY=VALUE".to_owned()));
        }
        let before = made(core, &name)?;
        let mut keys = before.clone();
        assign(&mut keys, &set)?;
        for key in &unset {
            if keys.remove(key).is_none() {
                return Err(bad(format!("list {name} does not set `{key}`")));
            }
        }
        Ok(ListEdit { name, keys: Some(keys), before: Some(before) })
    }

    pub fn delete(core: &Core, list: ListName) -> Result<ListEdit, Problem> {
        let before = made(core, &list.name)?;
        Ok(ListEdit { name: list.name, keys: None, before: Some(before) })
    }

    /// Writes the file. Blocks.
    pub fn write(&self, data_dir: &Path) -> Result<(), Problem> {
        put(data_dir, &self.name, self.keys.as_ref()).map_err(|error| failed(&error))
    }

    /// Writes the former text. Blocks.
    pub fn undo(&self, data_dir: &Path) -> Result<(), Problem> {
        put(data_dir, &self.name, self.before.as_ref()).map_err(|error| failed(&error))
    }

    pub fn is_deletion(&self) -> bool {
        self.keys.is_none()
    }
}

fn put(data_dir: &Path, name: &str, keys: Option<&Table>) -> Result<(), ListFileError> {
    match keys {
        Some(keys) => list_files::write(data_dir, name, keys),
        None => list_files::delete(data_dir, name),
    }
}

/// Keys of a new list: members post to a discussion, and only the owner to the others.
fn styled(style: &str, owner: &str) -> Result<Table, Problem> {
    let post = match style {
        "discussion" => Value::String("members".to_owned()),
        "announce" | "newsletter" => Value::Array(vec![Value::String(owner.to_owned())]),
        other => {
            return Err(bad(format!("{other:?} is not a valid style: discussion, announce or newsletter")));
        }
    };
    let mut keys = Table::new();
    keys.insert("post".to_owned(), post);
    keys.insert("verp".to_owned(), Value::String("tagged".to_owned()));
    keys.insert("expire_s".to_owned(), Value::Integer(EXPIRE_S));
    keys.insert("coalesce_over".to_owned(), Value::Integer(COALESCE_OVER));
    keys.insert("report_to".to_owned(), Value::String("owner".to_owned()));
    Ok(keys)
}

fn assign(keys: &mut Table, set: &BTreeMap<String, String>) -> Result<(), Problem> {
    for (key, text) in set {
        let value = list_files::value(key, text).map_err(|error| failed(&error))?;
        keys.insert(key.clone(), value);
    }
    Ok(())
}

/// Returns the keys of a list that was made.
fn made(core: &Core, name: &str) -> Result<Table, Problem> {
    let settings = core.settings();
    if let Some(keys) = list_files::keys(&settings.config.data_dir, name).map_err(|error| failed(&error))? {
        return Ok(keys);
    }
    if let Some(problem) = lists::unknown(core, Some(name)) {
        return Err(problem);
    }
    let file = settings.config.file.as_deref().unwrap_or(Path::new("the configuration"));
    Err(bad(format!("list {name} is in {}: change it there, then `stentor reload`", file.display())))
}

/// All lists, or one with its keys.
pub(crate) fn table(core: &Arc<Core>, name: Option<&str>) -> Result<ControlReply, Problem> {
    if let Some(problem) = lists::unknown(core, name) {
        return Err(problem);
    }
    let settings = core.settings();
    let wanted = settings.config.lists.iter().filter(|list| name.is_none_or(|name| **list.list.name() == *name));
    let mut rows: Vec<ListOverview> = wanted
        .map(|config| {
            let list = config.list.settings();
            let in_file = || core.with(|hub, _| hub.store.list(&list.name).map(|state| state.ids.len() as u64));
            ListOverview {
                name: list.name.to_string(),
                address: list.address.to_string(),
                owner: list.owner.as_ref().map(ToString::to_string).unwrap_or_default(),
                post: posters(&list.post),
                members: match &config.subscribers {
                    Some(_) => in_file(),
                    None => Some(core.registry.member_count(&list.name)),
                },
                members_in: config
                    .subscribers
                    .as_ref()
                    .map_or("registry".to_owned(), |path| path.display().to_string()),
                is_made: list_files::path_of(&settings.config.data_dir, &list.name).is_file(),
                keys: BTreeMap::new(),
            }
        })
        .collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    if let (Some(_), [row]) = (name, &mut rows[..])
        && row.is_made
    {
        let keys = made(core, &row.name)?;
        row.keys = keys.into_iter().map(|(key, value)| (key, value.to_string())).collect();
    }
    Ok(ControlReply::Lists(Box::new(ListTable { rows })))
}

fn posters(post: &PostingPolicy) -> String {
    match post {
        PostingPolicy::Anyone => "anyone".to_owned(),
        PostingPolicy::Members => "members".to_owned(),
        PostingPolicy::Named(named) => named.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Deletes the members of a list that no longer exists.
pub(crate) async fn delete_members(core: &Core, name: &str) -> Result<u64, Problem> {
    let mut deleted = 0;
    loop {
        match core.registry.delete_members(name).await {
            Ok(0) => return Ok(deleted),
            Ok(some) => deleted += some as u64,
            Err(error) => {
                let text = format!(
                    "the list is deleted, but {} remain in the registry: {error}; a list of this name would have them",
                    plural(core.registry.member_count(name), "member")
                );
                return Err(Problem::new(ErrorCode::Failed, text));
            }
        }
    }
}

fn bad(text: String) -> Problem {
    Problem::new(ErrorCode::BadRequest, text)
}

fn failed(error: &ListFileError) -> Problem {
    let code = match error {
        ListFileError::Name(_) | ListFileError::Value { .. } => ErrorCode::BadRequest,
        ListFileError::Write { .. } | ListFileError::Damaged { .. } => ErrorCode::Failed,
    };
    Problem::new(code, error.to_string())
}
