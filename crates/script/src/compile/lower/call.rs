//! Calls: functions of the script are inlined, those of the library are instructions.

use std::sync::Arc;

use super::{Inlined, Key, Lower, Results, State, trace};
use crate::compile::ir::{Action, Condition};
use crate::compile::known::Known;
use crate::compile::slot::{Shape, Slot};
use crate::logged::{MOST_FIELDS, field_name};
use crate::syntax::points;
use crate::syntax::tree::{Expression, ExpressionKind, Function, FunctionId};

/// A field of a table that is written down.
type Field = (Arc<str>, Expression);

/// Arguments whose last is a table of fields: that one, and the others.
fn fields_of(arguments: &[Expression]) -> Option<(&[Field], &[Expression])> {
    let (last, words) = arguments.split_last()?;
    match &*last.kind {
        ExpressionKind::Table(Some(fields)) => Some((fields, words)),
        _ => None,
    }
}

/// Functions within functions that are followed.
const DEEPEST: usize = 16;

impl Lower<'_> {
    /// What a call gives.
    pub(super) fn call(&mut self, expression: &Expression) -> Results {
        self.line = expression.line;
        match &*expression.kind {
            ExpressionKind::Call(function, arguments) => {
                let function = self.expression(function);
                if let Shape::Known(Known::Library(name)) = &function.shape
                    && **name == *"nf.log"
                    && let Some((fields, words)) = fields_of(arguments)
                {
                    return self.log_with_fields(words, fields, expression.line).into();
                }
                let arguments = self.list(arguments);
                self.line = expression.line;
                let function = self.unwrap(function);
                match &function.shape {
                    // What it is not given is nil to it.
                    Shape::Known(Known::Function(id)) => self.inline(*id, arguments.values),
                    Shape::Known(Known::Library(name)) => {
                        let name = name.clone();
                        let arguments = self.counted(arguments);
                        self.library(&name, &arguments)
                    }
                    Shape::Unclear => {
                        self.refuse_use("what is called");
                        Slot::unclear().into()
                    }
                    shape => {
                        let name = shape.name();
                        self.refuse(format!("{name} is called")).into()
                    }
                }
            }
            ExpressionKind::Method(object, name, arguments) => {
                let object = self.expression(object);
                let arguments = self.list(arguments);
                self.line = expression.line;
                let object = self.unwrap(object);
                let arguments = self.counted(arguments);
                self.method(&object, name, &arguments)
            }
            _ => self.expression(expression).into(),
        }
    }

    /// Arguments whose number is known.
    fn counted(&mut self, arguments: Results) -> Vec<Slot> {
        if arguments.least < arguments.values.len() {
            self.refuse(
                "the last argument is a call that gives one value on one way, and another number of them on another: \
                 in brackets it is one",
            );
        }
        arguments.values
    }

    /// Follows a function of the script.
    pub(super) fn inline(&mut self, id: FunctionId, arguments: Vec<Slot>) -> Results {
        let chunk = self.chunk;
        let function = &chunk.functions[id.0];
        if self.functions.iter().any(|inlined| inlined.function == id) {
            return self.refuse(format!("'{}' calls itself", function.name)).into();
        }
        if self.functions.len() == DEEPEST {
            return self.refuse(format!("calls are nested more than {DEEPEST} deep")).into();
        }
        if function.variadic {
            return self.refuse(format!("'{}' takes any number of arguments", function.name)).into();
        }
        let mut arguments = arguments.into_iter();
        for parameter in &function.parameters {
            self.set(Key::Local(*parameter), arguments.next().unwrap_or_else(Slot::nil));
        }
        let line = self.line;
        self.followed.insert(id);
        self.functions.push(Inlined { function: id, returns: Vec::new(), breaks: Vec::new() });
        self.block(&function.body);
        let ended = self.state.take();
        let inlined = self.functions.pop().expect("it was pushed");
        self.line = line;

        let mut returns = inlined.returns;
        returns.extend(ended.map(|state| (state, Results::default())));
        self.join_results(returns)
    }

    /// `nf.log(words, { name = value })`
    fn log_with_fields(&mut self, words: &[Expression], fields: &[Field], line: u32) -> Slot {
        // Each is one value: none of them is the last argument.
        let all: Vec<Expression> =
            words.iter().chain(fields.iter().map(|(_, value)| value)).cloned().collect();
        let mut values = self.list(&all).values;
        values.resize_with(all.len(), Slot::nil);
        let mut names: Vec<String> = Vec::new();
        for (name, _) in fields {
            if names.iter().any(|known| **known == **name) {
                return self.refuse(format!("the field {name} of a log is named twice"));
            }
            if let Err(error) = field_name(name) {
                return self.refuse(error.to_string());
            }
            names.push(name.to_string());
        }
        self.line = line;
        if self.may_punt() {
            return self.refuse("'nf.log' is Lua's in a script that hands over");
        }
        if names.len() > MOST_FIELDS {
            return self.refuse(format!("a line of a log has {MOST_FIELDS} fields at most"));
        }
        self.log(&values, &names)
    }

    /// What there is where ways meet that each give values.
    pub(super) fn join_results(&mut self, returns: Vec<(State, Results)>) -> Results {
        let most = returns.iter().map(|(_, results)| results.values.len()).max().unwrap_or(0);
        let least = returns.iter().map(|(_, results)| results.least).min().unwrap_or(0);
        let keys: Vec<Key> = (0..most).map(|_| self.temporary()).collect();
        let states: Vec<State> = returns
            .into_iter()
            .map(|(mut state, results)| {
                let results = results.values.into_iter().chain(std::iter::repeat_with(Slot::nil));
                state.variables.extend(keys.iter().cloned().zip(results));
                state
            })
            .collect();
        self.join(states);
        Results { values: keys.iter().map(|key| self.take(key)).collect(), least }
    }

    /// Whether it is a function, or may be one, that a function makes. Its variables are followed as long as their block is:
    /// out of it, the function would see those of the next time.
    pub(super) fn is_made_here(&self, shape: &Shape) -> bool {
        let functions = &self.chunk.functions;
        match shape {
            Shape::Known(Known::Function(id)) => {
                let (first, last) = functions[id.0].lines;
                let is_within = |outer: &Function| outer.lines.0 <= first && last <= outer.lines.1;
                functions[1..id.0].iter().any(is_within)
            }
            Shape::Optional(inner) => self.is_made_here(inner),
            Shape::OneOf(shapes) => shapes.iter().any(|(_, shape)| self.is_made_here(shape)),
            _ => false,
        }
    }

    /// A function of the library.
    fn library(&mut self, name: &str, arguments: &[Slot]) -> Results {
        match (name, arguments) {
            ("string.find", [text, more @ ..]) => {
                let text = self.unwrap(text.clone());
                return self.each_of(&text, |lower, text| lower.find_text(text, more));
            }
            ("string.lower", [text]) => self.of_text(text, Self::lower_case),
            ("string.sub", [text, more @ ..]) => {
                self.of_text(text, |lower, text| lower.part_of_text(text, more))
            }
            ("string.len", [text]) => self.of_text(text, Self::length_of_text),
            // Of nil it is a string, too.
            ("tostring", [value]) => self.each(value, Self::text_of),
            (points::POINT, [line, told @ ..]) => self.point(line, told),
            (trace::FOLLOW, []) => self.begin_trace(),
            ("nf.get_random" | "nf.log" | "nf.capture" | "nf.mirror", _) if self.may_punt() => {
                self.refuse(format!("'{name}' is Lua's in a script that hands over"))
            }
            ("nf.get_random", []) => Slot::integer(self.emit(Action::Random)),
            ("nf.log", values) => self.log(values, &[]),
            ("nf.capture", [packet, name]) => self.capture(packet, name),
            ("nf.mirror", [packet, interface]) => self.mirror(packet, interface),
            ("math.min" | "math.max", [first, others @ ..]) => {
                let mut best = self.integer(first.clone(), "an argument");
                for other in others {
                    let other = self.integer(other.clone(), "an argument");
                    let [less, more] = if name == "math.min" { [other, best] } else { [best, other] };
                    best = self.select(Condition::Less, less, more, [other, best]);
                }
                Slot::integer(best)
            }
            ("dns.name", [view]) => {
                let view = self.unwrap(view.clone());
                self.each(&view, Self::dns_name)
            }
            ("nf.get_time", []) => Slot::integer(self.emit(Action::Time)),
            _ => self.refuse(format!("'{name}' is not there in the kernel")),
        }
        .into()
    }

    /// What a function of strings gives, whichever a value is.
    fn of_text(&mut self, text: &Slot, act: impl FnMut(&mut Self, &Slot) -> Slot) -> Slot {
        let text = self.unwrap(text.clone());
        self.each(&text, act)
    }

    fn method(&mut self, object: &Slot, name: &str, arguments: &[Slot]) -> Results {
        match &object.shape {
            Shape::Unclear => {
                self.refuse_use("the object");
                Slot::unclear()
            }
            Shape::OneOf(_) => {
                return self.each_of(object, |lower, object| lower.method(object, name, arguments));
            }
            Shape::View(_) | Shape::Field(..) => self.view_method(object, name, arguments),
            Shape::Text(_) | Shape::PacketText(..)
                if let Known::Library(function) = self.top.of_strings(name)
                    && ["lower", "sub", "find", "len"].contains(&name) =>
            {
                return self.library(&function, &[std::slice::from_ref(object), arguments].concat());
            }
            Shape::Stream => self.stream_method(object, name, arguments),
            Shape::Flow(shared) => self.flow_method(shared, object, name, arguments),
            Shape::Known(Known::Shared(shared)) => return self.shared_method(shared, name, arguments),
            shape => {
                let shape = shape.name();
                self.refuse(format!("{shape} has no method '{name}' in the kernel"))
            }
        }
        .into()
    }
}
