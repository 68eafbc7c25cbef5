//! Reads a declaration, the table that `register_dynamic_protbuf` takes, and tells what is wrong with it.

use mlua::{Table, Value};

use super::{
    Access, Amount, Changes, Condition, Effect, Field, MAX_FIELDS, Policy, PolicyTable, Protocol, ProtocolId,
    Protocols, Step,
};
use crate::kind::Kind;

/// Names of methods that every view has. `data` may be a field: the payload's.
const METHODS: [&str; 8] = ["raw", "data", "get", "set", "grow", "shrink", "flow", "redirect"];
/// Far more than any packet has, so that sums of offsets and lengths cannot overflow.
const MAX_BITS: u32 = 1 << 24;

/// What is wrong with a declaration.
#[derive(Debug, thiserror::Error)]
#[error("protocol {name}: {what}")]
pub struct DeclarationError {
    name: String,
    what: String,
}

/// The protocol that `table` declares. Names in its policy are given numbers in `protocols`.
pub fn read(table: &Table, protocols: &mut Protocols) -> Result<Protocol, DeclarationError> {
    let name: String = match table.get("name") {
        Ok(Some(name)) => name,
        _ => return Err(DeclarationError { name: "?".into(), what: "`name` must be a string".into() }),
    };
    let error = |what| DeclarationError { name: name.clone(), what };
    Reader { table, protocols }.protocol(&name).map_err(error)
}

struct Reader<'a> {
    table: &'a Table,
    protocols: &'a mut Protocols,
}

impl Reader<'_> {
    fn protocol(&mut self, name: &str) -> Result<Protocol, String> {
        if !is_identifier(name) {
            return Err("`name` must be an identifier: a global variable gets it".into());
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
                return Err(format!("field {}: every view has a method of this name", field.name));
            }
        }
        let policy = self.policy(&fields)?;
        let changes = changes(&value(self.table, "get_field_changes")?, &fields)?;
        let about = string(self.table, "about")?.unwrap_or_default();
        Ok(Protocol { name: name.to_owned(), about, fields, payload, policy, changes })
    }

    fn fields(&self) -> Result<Vec<Field>, String> {
        let Value::Table(list) = value(self.table, "protocol_fields")? else {
            return Err("`protocol_fields` must be a list of {name, offset, length, getter, setter}".into());
        };
        let mut fields: Vec<Field> = Vec::new();
        for (row, entry) in (1..).zip(list.sequence_values::<Table>()) {
            let entry = entry.map_err(|_| format!("protocol_fields: entry {row} is not a table"))?;
            let field = field(&entry).map_err(|what| format!("protocol_fields: entry {row}: {what}"))?;
            if fields.iter().any(|other| other.name == field.name) {
                return Err(format!("protocol_fields: {} is there twice", field.name));
            }
            fields.push(field);
        }
        if fields.len() > MAX_FIELDS {
            return Err(format!("{} fields: at most {MAX_FIELDS}", fields.len()));
        }
        Ok(fields)
    }

    fn policy(&mut self, fields: &[Field]) -> Result<Policy, String> {
        let key = "has_protocol";
        match value(self.table, key)? {
            Value::Nil | Value::Boolean(false) => Ok(Policy::Never),
            Value::Boolean(true) => Ok(Policy::Always),
            Value::Function(_) | Value::String(_) => Ok(Policy::Function),
            Value::Table(table) => self.policy_table(&table, fields).map_err(|what| format!("{key}: {what}")),
            other => {
                Err(format!("{key}: a function, its name, a table or a boolean, not a {}", other.type_name()))
            }
        }
    }

    fn policy_table(&mut self, table: &Table, fields: &[Field]) -> Result<Policy, String> {
        let field = field_of(table, "field", fields)?.ok_or("`field` is missing")?;
        let when = condition(&value(table, "when")?, fields)?;
        let mut through = Vec::new();
        if let Value::Table(names) = value(table, "through")? {
            for name in names.sequence_values::<String>() {
                through.push(self.id(&name.map_err(|_| "`through` must be a list of names")?)?);
            }
        }
        let mut protocols = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            match pair.map_err(|error| error.to_string())? {
                (Value::Integer(number), names) => {
                    let number = number.cast_unsigned();
                    match names {
                        Value::String(name) => protocols.push((number, self.id(&name.to_string_lossy())?)),
                        Value::Table(names) => {
                            for name in names.sequence_values::<String>() {
                                let name =
                                    name.map_err(|_| format!("[{number}] must be names of protocols"))?;
                                protocols.push((number, self.id(&name)?));
                            }
                        }
                        _ => {
                            return Err(format!(
                                "[{number}] must be the name of a protocol, or a list of them"
                            ));
                        }
                    }
                }
                (Value::String(key), _) if ["field", "when", "through"].iter().any(|known| key == *known) => {
                }
                (key, _) => return Err(format!("unknown key {}", key.to_string().unwrap_or_default())),
            }
        }
        // Lua's order of a table's entries says nothing.
        protocols.sort_unstable_by_key(|&(number, id)| (number, id.0));
        Ok(Policy::Table(PolicyTable { field, when, protocols, through }))
    }

    fn id(&mut self, name: &str) -> Result<ProtocolId, String> {
        self.protocols.id(name).ok_or_else(|| "too many protocols".into())
    }
}

fn field(entry: &Table) -> Result<Field, String> {
    let name: String = entry.get(1).map_err(|_| "the name must be a string")?;
    if !is_identifier(&name) {
        return Err(format!("{name:?} is not an identifier: a method gets this name"));
    }
    let bits = |index: i64, what: &str| match entry.get::<Option<i64>>(index) {
        Ok(Some(bits)) => u32::try_from(bits)
            .ok()
            .filter(|bits| *bits <= MAX_BITS)
            .ok_or_else(|| format!("{name}: the {what} {bits} must be between 0 and {MAX_BITS} bits")),
        _ => Err(format!("{name}: the {what} must be an integer, in bits")),
    };
    let (offset, length) = (bits(2, "offset")?, bits(3, "length")?);
    let access =
        |index: i64, what: &str| match entry.get::<Value>(index).map_err(|error| error.to_string())? {
            Value::Nil => Ok(None),
            Value::Function(_) => Ok(Some(Access::Function)),
            Value::String(text) => {
                // What is not a kind is the name of a function, as in has_protocol.
                Ok(Some(Kind::from_name(&text.to_string_lossy()).map_or(Access::Function, Access::Kind)))
            }
            other => Err(format!(
                "{name}: the {what} must be a kind, a function or its name, not a {}",
                other.type_name()
            )),
        };
    let getter = access(4, "getter")?.unwrap_or(Access::Kind(Kind::Raw));
    let setter = access(5, "setter")?.unwrap_or(match getter {
        Access::Kind(kind) => Access::Kind(kind),
        Access::Function => Access::Kind(Kind::Raw),
    });
    for access in [&getter, &setter] {
        let Access::Kind(kind) = access else { continue };
        if kind.bits().is_some_and(|bits| length != bits && length != 0) {
            return Err(format!("{name}: a field of the kind {kind} has {} bits", kind.bits().unwrap_or(0)));
        }
        if *kind == Kind::Int && length > 64 {
            return Err(format!("{name}: an int has at most 64 bits"));
        }
        if !kind.is_of_bits() && *kind != Kind::Raw && (offset % 8 != 0 || length % 8 != 0) {
            return Err(format!("{name}: a field of the kind {kind} begins and ends with an octet"));
        }
    }
    Ok(Field { name, offset, length, getter, setter })
}

fn changes(value: &Value, fields: &[Field]) -> Result<Changes, String> {
    let context = |what: String| format!("get_field_changes: {what}");
    match value {
        Value::Nil => Ok(Changes::None),
        Value::Function(_) | Value::String(_) => Ok(Changes::Function),
        Value::Table(table) if table.raw_len() == 0 => {
            Ok(Changes::Steps(vec![step(table, fields).map_err(context)?]))
        }
        Value::Table(list) => list
            .sequence_values::<Table>()
            .map(|entry| step(&entry.map_err(|_| "a step must be a table".to_owned())?, fields))
            .collect::<Result<_, _>>()
            .map(Changes::Steps)
            .map_err(context),
        other => Err(context(format!("a function, its name, or a table, not a {}", other.type_name()))),
    }
}

fn step(table: &Table, fields: &[Field]) -> Result<Step, String> {
    known_keys(table, &["when", "grows", "ends", "by", "field", "unit", "minimum", "plus"])?;
    let when = condition(&value(table, "when")?, fields)?;
    let ends = matches!(value(table, "ends")?, Value::Boolean(true));
    let effect = match (field_of(table, "grows", fields)?, ends) {
        (Some(field), false) => Effect::Grow(field),
        (None, true) => Effect::End,
        _ => return Err("a step has either `grows`, a field, or `ends = true`".into()),
    };
    let amount = match (integer(table, "by")?, field_of(table, "field", fields)?) {
        (Some(by), None) => {
            Amount::Bits(u32::try_from(by).ok().filter(|by| *by <= MAX_BITS).ok_or("`by` is out of range")?)
        }
        (None, Some(field)) => {
            let unit = integer(table, "unit")?.ok_or("`unit`, in bits, belongs to `field`")?;
            let unit =
                u32::try_from(unit).ok().filter(|unit| *unit <= 1 << 16).ok_or("`unit` is out of range")?;
            let plus = integer(table, "plus")?.unwrap_or(0) - integer(table, "minimum")?.unwrap_or(0);
            if plus.unsigned_abs() > u64::from(MAX_BITS) {
                return Err("`plus` or `minimum` is out of range".into());
            }
            Amount::Field { field, unit, plus }
        }
        _ => return Err("a step has either `by`, in bits, or `field` and `unit`".into()),
    };
    Ok(Step { when, effect, amount })
}

fn condition(value: &Value, fields: &[Field]) -> Result<Option<Condition>, String> {
    let table = match value {
        Value::Nil => return Ok(None),
        Value::Table(table) => table,
        _ => return Err("`when` must be {field = NAME, is = {VALUE, …}}".into()),
    };
    known_keys(table, &["field", "is", "is_not"])?;
    let field = field_of(table, "field", fields)?.ok_or("`when` needs `field`")?;
    let list = |key: &str| match table.get::<Option<Vec<i64>>>(key) {
        Ok(list) => Ok(list.map(|list| list.into_iter().map(i64::cast_unsigned).collect::<Vec<_>>())),
        Err(_) => Err(format!("`{key}` must be a list of integers")),
    };
    match (list("is")?, list("is_not")?) {
        (Some(values), None) => Ok(Some(Condition { field, values, is: true })),
        (None, Some(values)) => Ok(Some(Condition { field, values, is: false })),
        _ => Err("`when` needs either `is` or `is_not`".into()),
    }
}

/// The field that `key` names. Only integers can tell something, so others are refused but for `grows`.
fn field_of(table: &Table, key: &str, fields: &[Field]) -> Result<Option<usize>, String> {
    let Some(name) = string(table, key)? else {
        return Ok(None);
    };
    let at = position(fields, &name, key)?;
    if key == "field" && (!fields[at].kind().is_of_bits() || fields[at].length > 64) {
        return Err(format!("`{key}`: {name} must be of the kind int or bool"));
    }
    Ok(Some(at))
}

fn position(fields: &[Field], name: &str, key: &str) -> Result<usize, String> {
    let at = fields.iter().position(|field| field.name == name);
    at.ok_or_else(|| format!("`{key}`: there is no field {name}"))
}

fn value(table: &Table, key: &str) -> Result<Value, String> {
    table.raw_get(key).map_err(|error| error.to_string())
}

fn string(table: &Table, key: &str) -> Result<Option<String>, String> {
    table.raw_get(key).map_err(|_| format!("`{key}` must be a string"))
}

fn integer(table: &Table, key: &str) -> Result<Option<i64>, String> {
    table.raw_get(key).map_err(|_| format!("`{key}` must be an integer"))
}

fn known_keys(table: &Table, known: &[&str]) -> Result<(), String> {
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair.map_err(|error| error.to_string())?;
        let key = key.to_string().unwrap_or_default();
        if !known.contains(&key.as_str()) {
            return Err(format!("unknown key {key} (known are {})", known.join(", ")));
        }
    }
    Ok(())
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
}
