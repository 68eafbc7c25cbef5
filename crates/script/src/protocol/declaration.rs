//! Reads a declaration, the table that `register_dynamic_protbuf` takes, and tells what is wrong with it.

use mlua::{Table, Value};

use super::declaration_error::{Fault, FieldFault};
use super::{
    Access, Amount, Changes, Condition, Effect, Field, MAX_BITS, MAX_FIELDS, Policy, PolicyTable, Protocol,
    ProtocolId, Protocols, QUESTIONS, Step,
};
use crate::kind::Kind;

pub use super::declaration_error::DeclarationError;

/// Names of methods that every view has. `data` may be a field: the payload's.
pub(crate) const METHODS: [&str; 12] = [
    "raw",
    "data",
    "get",
    "set",
    "grow",
    "shrink",
    "flow",
    "stream",
    "redirect",
    "vlan_id",
    "push_vlan",
    "pop_vlan",
];

/// The protocol that `table` declares. Names in its policy are given numbers in `protocols`.
pub fn read(table: &Table, protocols: &mut Protocols) -> Result<Protocol, DeclarationError> {
    let name: String = match table.get("name") {
        Ok(Some(name)) => name,
        _ => {
            let fault = Fault::Value { key: "name", wanted: "a string" };
            return Err(DeclarationError { name: "?".into(), fault });
        }
    };
    let error = |fault| DeclarationError { name: name.clone(), fault };
    Reader { table, protocols }.protocol(&name).map_err(error)
}

struct Reader<'a> {
    table: &'a Table,
    protocols: &'a mut Protocols,
}

impl Reader<'_> {
    fn protocol(&mut self, name: &str) -> Result<Protocol, Fault> {
        if !is_identifier(name) {
            let wanted = "an identifier: a global variable gets it";
            return Err(Fault::Value { key: "name", wanted });
        }
        known_keys(
            self.table,
            &["name", "about", "payload_field", "protocol_fields", "has_protocol", "get_field_changes"],
        )?;
        let fields = self.fields()?;
        let payload = match string(self.table, "payload_field")? {
            Some(payload) => Some(position(&fields, &payload, "payload_field")?),
            None => None,
        };
        for (at, field) in fields.iter().enumerate() {
            let is_method = METHODS.contains(&field.name.as_str());
            if is_method && !(field.name == "data" && payload == Some(at)) {
                return Err(Fault::MethodName(field.name.clone()));
            }
        }
        let policy = self.policy(&fields)?;
        let changes = changes(&value(self.table, "get_field_changes")?, &fields, payload)?;
        let about = string(self.table, "about")?.unwrap_or_default();
        Ok(Protocol { name: name.to_owned(), about, fields, payload, policy, changes })
    }

    fn fields(&self) -> Result<Vec<Field>, Fault> {
        let Value::Table(list) = value(self.table, "protocol_fields")? else {
            let wanted = "a list of {name, offset, length, getter, setter}";
            return Err(Fault::Value { key: "protocol_fields", wanted });
        };
        let mut fields: Vec<Field> = Vec::new();
        for (number, entry) in (1..).zip(list.sequence_values::<Table>()) {
            let entry = entry.map_err(|_| Fault::NotATable(number))?;
            let field = field(&entry).map_err(|fault| Fault::Field { entry: number, fault })?;
            if fields.iter().any(|other| other.name == field.name) {
                return Err(Fault::Twice(field.name));
            }
            fields.push(field);
        }
        if fields.len() > MAX_FIELDS {
            return Err(Fault::TooManyFields(fields.len()));
        }
        Ok(fields)
    }

    fn policy(&mut self, fields: &[Field]) -> Result<Policy, Fault> {
        let key = "has_protocol";
        match value(self.table, key)? {
            Value::Nil | Value::Boolean(false) => Ok(Policy::Never),
            Value::Boolean(true) => Ok(Policy::Always),
            Value::Function(_) | Value::String(_) => Ok(Policy::Function),
            Value::Table(table) => self.policy_table(&table, fields).map_err(|fault| fault.inside(key)),
            other => {
                let wanted = "a function, its name, a table or a boolean";
                Err(Fault::Type { wanted, got: other.type_name() }.inside(key))
            }
        }
    }

    fn policy_table(&mut self, table: &Table, fields: &[Field]) -> Result<Policy, Fault> {
        let field = field_of(table, "field", fields)?.ok_or(Fault::Missing("field"))?;
        let when = condition(&value(table, "when")?, fields)?;
        let mut through = Vec::new();
        if let Value::Table(names) = value(table, "through")? {
            for name in names.sequence_values::<String>() {
                let wanted = "a list of names";
                through.push(self.id(&name.map_err(|_| Fault::Value { key: "through", wanted })?)?);
            }
        }
        let mut protocols = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            match pair? {
                (Value::Integer(number), names) => {
                    let number = number.cast_unsigned();
                    match names {
                        Value::String(name) => protocols.push((number, self.id(&name.to_string_lossy())?)),
                        Value::Table(names) => {
                            for name in names.sequence_values::<String>() {
                                let wanted = "names of protocols";
                                let name = name.map_err(|_| Fault::Next { number, wanted })?;
                                protocols.push((number, self.id(&name)?));
                            }
                        }
                        _ => {
                            let wanted = "the name of a protocol, or a list of them";
                            return Err(Fault::Next { number, wanted });
                        }
                    }
                }
                (Value::String(key), _) if ["field", "when", "through"].iter().any(|known| key == *known) => {
                }
                (key, _) => {
                    let key = key.to_string().unwrap_or_default();
                    return Err(Fault::UnknownKey { key, known: &[] });
                }
            }
        }
        // Lua's order of a table's entries says nothing.
        protocols.sort_unstable_by_key(|&(number, id)| (number, id.0));
        Ok(Policy::Table(PolicyTable { field, when, protocols, through }))
    }

    fn id(&mut self, name: &str) -> Result<ProtocolId, Fault> {
        self.protocols.id(name).ok_or(Fault::TooManyProtocols)
    }
}

fn field(entry: &Table) -> Result<Field, FieldFault> {
    let name: String = entry.get(1).map_err(|_| FieldFault::NoName)?;
    if !is_identifier(&name) {
        return Err(FieldFault::Name(name));
    }
    let bits = |index: i64, part| match entry.get::<Option<i64>>(index) {
        Ok(Some(bits)) => u32::try_from(bits)
            .ok()
            .filter(|bits| *bits <= MAX_BITS)
            .ok_or_else(|| FieldFault::Bits { field: name.clone(), part, bits }),
        _ => Err(FieldFault::NoBits { field: name.clone(), part }),
    };
    let (offset, length) = (bits(2, "offset")?, bits(3, "length")?);
    let access = |index: i64, part| match entry.get::<Value>(index)? {
        Value::Nil => Ok(None),
        Value::Function(_) => Ok(Some(Access::Function)),
        Value::String(text) => {
            // What is not a kind is the name of a function, as in has_protocol.
            Ok(Some(Kind::from_name(&text.to_string_lossy()).map_or(Access::Function, Access::Kind)))
        }
        other => Err(FieldFault::Access { field: name.clone(), part, got: other.type_name() }),
    };
    let getter = access(4, "getter")?.unwrap_or(Access::Kind(Kind::Raw));
    let setter = access(5, "setter")?.unwrap_or(match getter {
        Access::Kind(kind) => Access::Kind(kind),
        Access::Function => Access::Kind(Kind::Raw),
    });
    for access in [&getter, &setter] {
        let Access::Kind(kind) = access else { continue };
        if let Some(bits) = kind.bits().filter(|bits| length != *bits && length != 0) {
            return Err(FieldFault::Length { field: name, kind: *kind, bits });
        }
        if *kind == Kind::Int && length > 64 {
            return Err(FieldFault::LongInt(name));
        }
        if !kind.is_of_bits() && *kind != Kind::Raw && (offset % 8 != 0 || length % 8 != 0) {
            return Err(FieldFault::WithinOctet { field: name, kind: *kind });
        }
    }
    Ok(Field { name, offset, length, getter, setter })
}

fn changes(value: &Value, fields: &[Field], payload: Option<usize>) -> Result<Changes, Fault> {
    let inside = |fault: Fault| fault.inside("get_field_changes");
    match value {
        Value::Nil => Ok(Changes::None),
        Value::Function(_) | Value::String(_) => Ok(Changes::Function),
        Value::Table(table) if table.contains_key("question")? => {
            question(table, fields, payload).map_err(inside)
        }
        Value::Table(table) if table.raw_len() == 0 => {
            Ok(Changes::Steps(vec![step(table, fields).map_err(inside)?]))
        }
        Value::Table(list) => list
            .sequence_values::<Table>()
            .map(|entry| {
                let entry = entry.map_err(|_| Fault::StepNotATable)?;
                step(&entry, fields)
            })
            .collect::<Result<_, _>>()
            .map(Changes::Steps)
            .map_err(inside),
        other => {
            let wanted = "a function, its name, or a table";
            Err(inside(Fault::Type { wanted, got: other.type_name() }))
        }
    }
}

/// Fields that are a question of DNS: they are the last, behind a fixed header, and have no length of their own.
fn question(table: &Table, fields: &[Field], payload: Option<usize>) -> Result<Changes, Fault> {
    known_keys(table, &["question"])?;
    let name = field_of(table, "question", fields)?.ok_or(Fault::Missing("question"))?;
    let (before, own) = fields.split_at(name);
    let begin = own[0].offset;
    let fits = own.len() == 4
        && payload == Some(name + 3)
        && begin % 8 == 0
        && begin as usize / 8 >= QUESTIONS + 2
        && own.iter().all(|field| field.length == 0 && field.offset == begin)
        && before.iter().map(|field| field.offset + field.length).max() == Some(begin);
    let wanted = "`question` is the first of the last four fields, which begin where the others end and have no length; \
                  the last of them is the payload field";
    if fits { Ok(Changes::Question(name)) } else { Err(Fault::Combination(wanted)) }
}

fn step(table: &Table, fields: &[Field]) -> Result<Step, Fault> {
    known_keys(table, &["when", "grows", "ends", "by", "field", "unit", "minimum", "plus"])?;
    let when = condition(&value(table, "when")?, fields)?;
    let ends = matches!(value(table, "ends")?, Value::Boolean(true));
    let effect = match (field_of(table, "grows", fields)?, ends) {
        (Some(field), false) => Effect::Grow(field),
        (None, true) => Effect::End,
        _ => return Err(Fault::Combination("a step has either `grows`, a field, or `ends = true`")),
    };
    let amount = match (integer(table, "by")?, field_of(table, "field", fields)?) {
        (Some(by), None) => {
            let by = u32::try_from(by).ok().filter(|by| *by <= MAX_BITS);
            Amount::Bits(by.ok_or(Fault::Range("`by`"))?)
        }
        (None, Some(field)) => {
            let unit = integer(table, "unit")?;
            let unit = unit.ok_or(Fault::Combination("`unit`, in bits, belongs to `field`"))?;
            let unit = u32::try_from(unit).ok().filter(|unit| *unit <= 1 << 16);
            let unit = unit.ok_or(Fault::Range("`unit`"))?;
            let plus = integer(table, "plus")?.unwrap_or(0) - integer(table, "minimum")?.unwrap_or(0);
            if plus.unsigned_abs() > u64::from(MAX_BITS) {
                return Err(Fault::Range("`plus` or `minimum`"));
            }
            Amount::Field { field, unit, plus }
        }
        _ => return Err(Fault::Combination("a step has either `by`, in bits, or `field` and `unit`")),
    };
    Ok(Step { when, effect, amount })
}

fn condition(value: &Value, fields: &[Field]) -> Result<Option<Condition>, Fault> {
    let table = match value {
        Value::Nil => return Ok(None),
        Value::Table(table) => table,
        _ => return Err(Fault::Value { key: "when", wanted: "{field = NAME, is = {VALUE, …}}" }),
    };
    known_keys(table, &["field", "is", "is_not"])?;
    let field = field_of(table, "field", fields)?.ok_or(Fault::Combination("`when` needs `field`"))?;
    let list = |key| match table.get::<Option<Vec<i64>>>(key) {
        Ok(list) => Ok(list.map(|list| list.into_iter().map(i64::cast_unsigned).collect::<Vec<_>>())),
        Err(_) => Err(Fault::Value { key, wanted: "a list of integers" }),
    };
    match (list("is")?, list("is_not")?) {
        (Some(values), None) => Ok(Some(Condition { field, values, is: true })),
        (None, Some(values)) => Ok(Some(Condition { field, values, is: false })),
        _ => Err(Fault::Combination("`when` needs either `is` or `is_not`")),
    }
}

/// The field that `key` names. Only integers can tell something, so others are refused but for `grows`.
fn field_of(table: &Table, key: &'static str, fields: &[Field]) -> Result<Option<usize>, Fault> {
    let Some(name) = string(table, key)? else {
        return Ok(None);
    };
    let at = position(fields, &name, key)?;
    if key == "field" && (!fields[at].kind().is_of_bits() || fields[at].length > 64) {
        return Err(Fault::NoInteger { key, field: name });
    }
    Ok(Some(at))
}

fn position(fields: &[Field], name: &str, key: &'static str) -> Result<usize, Fault> {
    let at = fields.iter().position(|field| field.name == name);
    at.ok_or_else(|| Fault::NoField { key, field: name.to_owned() })
}

fn value(table: &Table, key: &str) -> Result<Value, Fault> {
    Ok(table.raw_get(key)?)
}

fn string(table: &Table, key: &'static str) -> Result<Option<String>, Fault> {
    table.raw_get(key).map_err(|_| Fault::Value { key, wanted: "a string" })
}

fn integer(table: &Table, key: &'static str) -> Result<Option<i64>, Fault> {
    table.raw_get(key).map_err(|_| Fault::Value { key, wanted: "an integer" })
}

fn known_keys(table: &Table, known: &'static [&'static str]) -> Result<(), Fault> {
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        let key = key.to_string().unwrap_or_default();
        if !known.contains(&key.as_str()) {
            return Err(Fault::UnknownKey { key, known });
        }
    }
    Ok(())
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a declaration of these values, which has one field, `a`, of eight bits.
    fn said(values: &str) -> String {
        let text = format!("return {{name = 'x', protocol_fields = {{{{'a', 0, 8, 'int'}}}}, {values}}}");
        let lua = mlua::Lua::new();
        let table: Table = lua.load(text).eval().expect("a table");
        let read = read(&table, &mut Protocols::default());
        read.map_or_else(|error| error.to_string(), |protocol| panic!("{protocol:?}"))
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (values, wanted) in [
            ("name = 1.5", "`name` must be an identifier: a global variable gets it"),
            (
                "colour = 1",
                "unknown key colour (known are name, about, payload_field, protocol_fields, has_protocol, get_field_changes)",
            ),
            ("about = {}", "`about` must be a string"),
            ("payload_field = 'b'", "`payload_field`: there is no field b"),
            ("has_protocol = 1", "has_protocol: a function, its name, a table or a boolean, not a integer"),
            ("has_protocol = {}", "has_protocol: `field` is missing"),
            ("has_protocol = {field = 'b'}", "has_protocol: `field`: there is no field b"),
            (
                "has_protocol = {field = 'a', [1] = 2}",
                "has_protocol: [1] must be the name of a protocol, or a list of them",
            ),
            ("has_protocol = {field = 'a', [1] = {{}}}", "has_protocol: [1] must be names of protocols"),
            (
                "has_protocol = {field = 'a', through = {{}}}",
                "has_protocol: `through` must be a list of names",
            ),
            ("has_protocol = {field = 'a', colour = 1}", "has_protocol: unknown key colour"),
            (
                "has_protocol = {field = 'a', when = 1}",
                "has_protocol: `when` must be {field = NAME, is = {VALUE, …}}",
            ),
            ("has_protocol = {field = 'a', when = {}}", "has_protocol: `when` needs `field`"),
            (
                "has_protocol = {field = 'a', when = {field = 'a'}}",
                "has_protocol: `when` needs either `is` or `is_not`",
            ),
            (
                "has_protocol = {field = 'a', when = {field = 'a', is = 'b'}}",
                "has_protocol: `is` must be a list of integers",
            ),
            (
                "get_field_changes = true",
                "get_field_changes: a function, its name, or a table, not a boolean",
            ),
            ("get_field_changes = {1}", "get_field_changes: a step must be a table"),
            (
                "get_field_changes = {question = 'a'}",
                "get_field_changes: `question` is the first of the last four fields, which begin where the others end and have \
                 no length; the last of them is the payload field",
            ),
            (
                "get_field_changes = {by = 1}",
                "get_field_changes: a step has either `grows`, a field, or `ends = true`",
            ),
            (
                "get_field_changes = {ends = true}",
                "get_field_changes: a step has either `by`, in bits, or `field` and `unit`",
            ),
            ("get_field_changes = {ends = true, by = -1}", "get_field_changes: `by` is out of range"),
            ("get_field_changes = {ends = true, by = 'b'}", "get_field_changes: `by` must be an integer"),
            (
                "get_field_changes = {ends = true, field = 'a'}",
                "get_field_changes: `unit`, in bits, belongs to `field`",
            ),
            (
                "get_field_changes = {ends = true, field = 'a', unit = -1}",
                "get_field_changes: `unit` is out of range",
            ),
            (
                "get_field_changes = {ends = true, field = 'a', unit = 1, plus = 1 << 30}",
                "get_field_changes: `plus` or `minimum` is out of range",
            ),
            (
                "protocol_fields = 1",
                "`protocol_fields` must be a list of {name, offset, length, getter, setter}",
            ),
            ("protocol_fields = {1}", "protocol_fields: entry 1 is not a table"),
            ("protocol_fields = {{{}}}", "protocol_fields: entry 1: the name must be a string"),
            (
                "protocol_fields = {{'a b'}}",
                "protocol_fields: entry 1: \"a b\" is not an identifier: a method gets this name",
            ),
            (
                "protocol_fields = {{'b', 0}}",
                "protocol_fields: entry 1: b: the length must be an integer, in bits",
            ),
            (
                "protocol_fields = {{'b', -1, 8}}",
                "protocol_fields: entry 1: b: the offset -1 must be between 0 and 16777216 bits",
            ),
            (
                "protocol_fields = {{'b', 0, 8, 1}}",
                "protocol_fields: entry 1: b: the getter must be a kind, a function or its name, not a integer",
            ),
            (
                "protocol_fields = {{'b', 0, 8, 'mac'}}",
                "protocol_fields: entry 1: b: a field of the kind mac has 48 bits",
            ),
            (
                "protocol_fields = {{'b', 0, 65, 'int'}}",
                "protocol_fields: entry 1: b: an int has at most 64 bits",
            ),
            (
                "protocol_fields = {{'b', 1, 8, 'text'}}",
                "protocol_fields: entry 1: b: a field of the kind text begins and ends with an octet",
            ),
            ("protocol_fields = {{'b', 0, 8}, {'b', 8, 8}}", "protocol_fields: b is there twice"),
            ("protocol_fields = {{'get', 0, 8}}", "field get: every view has a method of this name"),
        ] {
            let name = if values.starts_with("name") { "1.5" } else { "x" };
            assert_eq!(said(values), format!("protocol {name}: {wanted}"), "{values}");
        }
        let lua = mlua::Lua::new();
        let nameless = lua.create_table().expect("a table");
        let read = read(&nameless, &mut Protocols::default());
        assert_eq!(read.unwrap_err().to_string(), "protocol ?: `name` must be a string");
    }
}
