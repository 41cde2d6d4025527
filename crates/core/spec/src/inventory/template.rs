//! `image.templates`.

use ichor_model::{
    At, HostName, VmId,
    desired::{Role, Served},
};
use schemars::JsonSchema;

use crate::{
    read::{Map, Read, Reader, keys, record},
    yaml::{Kind, Node},
};

/// Templates by role or group: the number of each, and all that is said of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Templates(pub Vec<(At<TemplateKey>, At<VmId>)>, pub Vec<(At<TemplateKey>, At<Template>)>);

/// A role, or a group by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateKey(pub String);

impl TemplateKey {
    /// Returns the role, unless this is a group.
    pub fn role(&self) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.word() == self.0)
    }
}

/// A template is written where one of those it serves is.
impl PartialEq<Served> for TemplateKey {
    fn eq(&self, served: &Served) -> bool {
        served.0.contains(&self.0)
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
        let Map(entries) = Map::<TemplateKey, Written>::read(node, reader)?;
        let all: Vec<_> =
            entries.into_iter().map(|(key, written)| (key, written.map(|written| written.0))).collect();
        let numbers = all.iter().filter_map(|(key, template)| Some((key.clone(), template.vmid?)));
        Some(Self(numbers.collect(), all))
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
            "additionalProperties": { "anyOf": [number, template] },
            "examples": ["{control-plane: 998, gpu: {vmid: 997, host: pve1, existing: true}}"],
        })
    }
}
