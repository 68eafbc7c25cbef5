//! What has changed between two documents, as a JSON merge patch (RFC 7396).

use serde_json::{Map, Value};

/// What makes `after` of `before`; nothing where they are the same. Both are objects whose fields, at any depth, are never
/// null where it matters: in a patch null removes a field, so that a field which becomes null is gone for the reader, to whom
/// both are nothing known.
pub(crate) fn between(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (name, new) in after {
        let change = match before.get(name) {
            Some(old) => between(old, new),
            None => Some(new.clone()),
        };
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    patch.extend(gone.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// As RFC 7396 has it, section 2.
    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (name, value) in patch {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(name);
            } else {
                apply(&mut target[name], value);
            }
        }
    }

    fn without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), without_nulls(value)))
                .collect::<Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3).prop_map(Value::from),
            "[ab]?".prop_map(Value::from),
            prop::collection::vec(0..2, 0..2).prop_map(Value::from),
        ];
        let object = |inner| prop::collection::btree_map("[abc]", inner, 0..4);
        let value = leaf.prop_recursive(3, 16, 4, move |inner| {
            object(inner).prop_map(|map| map.into_iter().collect::<Map<_, _>>().into())
        });
        prop::collection::btree_map("[abc]", value, 0..4)
            .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into())
    }

    proptest! {
        #[test]
        fn a_reader_who_applies_it_has_the_new_document(before in document(), after in document()) {
            let mut read = without_nulls(&before);
            if let Some(patch) = between(&before, &after) {
                apply(&mut read, &patch);
            } else {
                prop_assert_eq!(&before, &after);
            }
            prop_assert_eq!(without_nulls(&read), without_nulls(&after));
        }
    }
}
