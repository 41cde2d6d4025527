//! `image.templates`.

use ichor_model::{At, HostName, VmId, desired::Role};
use schemars::JsonSchema;

use crate::{
    read::{Map, Read, Reader, keys, record},
    yaml::{Kind, Node},
};

/// Templates by role or group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Templates(pub Vec<(At<TemplateKey>, At<Template>)>);

impl Templates {
    /// Returns the number of every template that has one.
    pub fn numbers(&self) -> impl Iterator<Item = (&TemplateKey, At<VmId>)> {
        self.0.iter().filter_map(|(key, template)| Some((&key.value, template.vmid?)))
    }

    /// Returns where the number of a template stands that serves any of these.
    pub fn place_of(&self, serves: &[String]) -> Option<ichor_model::Span> {
        self.numbers().find(|(key, _)| serves.contains(&key.0)).map(|(_, vmid)| vmid.span)
    }
}

/// A role, or a group by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateKey(pub String);

impl TemplateKey {
    /// Returns the role, unless this is a group.
    pub fn role(&self) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.word() == self.0)
    }
}

impl Read for TemplateKey {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        String::read(node, reader).map(Self)
    }
}

keys!(TemplateKey);

record! {
    /// A template VM.
    Template {
        /// Its VMID.
        vmid: VmId,
        /// The host it lives on. Absent: the only host, or whichever has it.
        host: HostName,
        /// Somebody else made it: ichor clones it, and never builds, changes or deletes it.
        existing: bool,
    }
}

/// A template as it is written: a number, or a map.
#[derive(Debug, Clone, PartialEq)]
struct Written(Template);

impl Read for Written {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match node.kind {
            Kind::Scalar { .. } => {
                let vmid = VmId::read(node, reader)?;
                Some(Self(Template { vmid: Some(At::new(vmid, node.span)), ..Template::default() }))
            }
            _ => Template::read(node, reader).map(Self),
        }
    }
}

impl Read for Templates {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let Map(entries, _) = Map::<TemplateKey, Written>::read(node, reader)?;
        Some(Self(
            entries.into_iter().map(|(key, written)| (key, written.map(|written| written.0))).collect(),
        ))
    }
}

impl JsonSchema for Templates {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Templates".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let (number, template) = (generator.subschema_for::<VmId>(), generator.subschema_for::<Template>());
        schemars::json_schema!({
            "description": "Templates by role (`control-plane`, `worker`) or by the name of a group.",
            "type": "object",
            "additionalProperties": { "anyOf": [number, template, { "type": "null" }] },
            "examples": ["{control-plane: 998, gpu: {vmid: 997, host: pve1, existing: true}}"],
        })
    }
}
