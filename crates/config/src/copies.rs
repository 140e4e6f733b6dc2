//! What copies of a list's or sender's mail have of their own: the keys `verp`, `one_click` and `copy_fields`.

use stentor_copies::{CopyFields, CopySettings, FieldTemplate, VerpTemplate};

use super::raw::Section;

/// Reads the keys. `has_links`: `link_base` in [http] is set; `of_list`: the section is a list's.
pub(super) fn read(section: &Section<'_>, has_links: bool, of_list: bool) -> CopySettings {
    let context = section.context;
    let verp = section.text("verp").and_then(|text| {
        let template =
            VerpTemplate::named(text.value).map_err(|why| format!("`verp`: {why}, or \"plain\" or \"tagged\""));
        let template = template.and_then(|template| {
            if of_list && !template.is_detail() {
                return Err(
                    "`verp` of a list needs `+` after {local}: only such addresses lead to `bounces`".to_owned()
                );
            }
            Ok(template)
        });
        template.map_err(|why| context.error(text.span, why)).ok()
    });
    let one_click = section.flag("one_click", false);
    if one_click && !has_links {
        let message = "`one_click` needs `link_base` in [http]: the HTTPS address at which subscribers reach this \
            server; write, for instance, link_base = \"https://lists.example.org\"";
        context.error(section.span_of("one_click"), message.to_owned());
    }
    let mut fields = Vec::new();
    for text in section.texts("copy_fields").unwrap_or_default() {
        match FieldTemplate::parse(text.value) {
            Ok(field) => fields.push(field),
            Err(why) => context.error(text.span, why.to_string()),
        }
    }
    if one_click && fields.iter().any(FieldTemplate::is_unsubscribe) {
        let message = "`copy_fields` sets List-Unsubscribe, and so does `one_click`".to_owned();
        context.error(section.span_of("copy_fields"), message);
    }
    if !of_list && fields.iter().any(FieldTemplate::needs_list) {
        let message =
            "`{list}` and `{mailbox}` in `copy_fields` are for [lists.NAME]: mail of a sender has no list".to_owned();
        context.error(section.span_of("copy_fields"), message);
    }
    let fields = CopyFields::new(fields).unwrap_or_else(|why| {
        context.error(section.span_of("copy_fields"), why.to_string());
        CopyFields::default()
    });
    CopySettings { verp, one_click, fields }
}
