//! Points of a trace: a script's text with calls between its statements that say which line has done what.
//!
//! All is put into the lines that are there, so that lines keep their numbers. A point of a declaration or assignment comes
//! behind it, with what the variables have then; one of a condition at the beginning of what it leads to; others come before
//! their statement.

use std::collections::HashSet;
use std::fmt::Write as _;

use full_moon::LuaVersion;
use full_moon::ast::{
    self, Ast, Expression, FunctionBody, If, Index, LastStmt, LocalAssignment, Parameter, Stmt, Suffix, Var,
};
use full_moon::node::Node;
use full_moon::tokenizer::{TokenReference, TokenType};
use full_moon::visitors::Visitor;

use super::read::{line_of, text};
use super::tree::{Error, Result};

/// The function that is called at a point: with the line, and names with their values, or how a condition came out.
pub(crate) const POINT: &str = "sidestep_traced";
/// What a twin is told to, in the text that has it.
pub(crate) const TWIN: &str = "sidestep_twin";
/// Variables of one statement that are told.
const MOST_NAMES: usize = 16;

/// The text of a script with points in its functions.
///
/// # Errors
/// If it is no Lua 5.4, or longer than the compiler takes.
pub fn points(source: &str) -> std::result::Result<String, String> {
    with_tree(source, |tree| Ok(spliced(source, 0..source.len(), &inserted(tree))))
        .map_err(|error| error.to_string())
}

/// The text of a script and behind it, on as many lines, a second form of the functions of its top level, with points; each
/// is handed to the function that the text is called with: its line, the function, one that tells what its variable has
/// now, and one that gives it another value. None if there is nothing that could be told so.
///
/// Lua has to have accepted it: see [`super::parse`].
pub(crate) fn twins(source: &str) -> Option<String> {
    let twins = with_tree(source, |tree| {
        if matches!(tree.nodes().last_stmt(), Some(LastStmt::Return(_))) {
            // Nothing comes behind it.
            return Ok(None);
        }
        let inserted = inserted(tree);
        let (mut text, mut from) = (format!("{source}\n"), 0);
        let mut any = false;
        let mut values = Values::default();
        values.visit_ast(tree);
        for (place, statement) in tree.nodes().stmts().enumerate() {
            let (name, is_method, body) = match statement {
                Stmt::FunctionDeclaration(function) => {
                    let name = function.name();
                    (name.to_string().trim().to_owned(), name.method_name().is_some(), function.body())
                }
                Stmt::LocalFunction(function) => (super::read::text(function.name()), false, function.body()),
                _ => continue,
            };
            let own_name = name.rsplit(['.', ':']).next().unwrap_or_default();
            if values.0.contains(own_name) || names_later_ones(tree, place, statement) {
                continue;
            }
            let opening = body.parameters_parentheses().tokens().0;
            let [begin, end] = [opening.start_position(), body.end_token().end_position()];
            let (Some(begin), Some(end), Some(line)) = (begin, end, statement.start_position()) else {
                continue;
            };
            let (begin, end, line) = (begin.bytes(), end.bytes(), line.line());
            new_lines(&mut text, source.get(from..begin).unwrap_or_default());
            let target = name.replace(':', ".");
            let comma = if body.parameters().is_empty() { "" } else { "," };
            let own = if is_method { format!("self{comma}") } else { String::new() };
            let rest = spliced(source, begin + 1..end, &inserted);
            let _ = write!(
                text,
                "do local {TWIN}=... {TWIN}({line},function({own}{rest},function() return {target} end,\
                 function({TWIN}) {target}={TWIN} end) end "
            );
            (from, any) = (end, true);
        }
        Ok(any.then_some(text))
    });
    twins.ok().flatten()
}

/// The tree is as deep as the text says, so a thread with stack enough is what looks at it.
fn with_tree<T: Send>(source: &str, look: impl FnOnce(&Ast) -> Result<T> + Send) -> Result<T> {
    super::with_stack(source, || {
        let parsed = full_moon::parse_fallible(source, LuaVersion::lua54());
        match parsed.errors().first() {
            Some(error) => Err(Error {
                line: error.range().0.line() as u32,
                message: error.error_message().into_owned(),
            }),
            None => look(parsed.ast()),
        }
    })
}

fn new_lines(text: &mut String, of: &str) {
    text.extend(of.chars().filter(|character| *character == '\n'));
}

/// Names whose value is taken, not called: a function that is kept or compared has to stay the one that it is.
#[derive(Default)]
struct Values(HashSet<String>);

impl Visitor for Values {
    fn visit_expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Var(Var::Name(name)) => _ = self.0.insert(text(name)),
            Expression::Var(Var::Expression(field)) => {
                if let Some(Suffix::Index(Index::Dot { name, .. })) = field.suffixes().last() {
                    self.0.insert(text(name));
                }
            }
            _ => {}
        }
    }
}

/// Whether a function names what is a local variable only behind it: at the end of the text the name would be another's.
fn names_later_ones(tree: &Ast, place: usize, function: &Stmt) -> bool {
    let mut later = Vec::new();
    for statement in tree.nodes().stmts().skip(place + 1) {
        match statement {
            Stmt::LocalAssignment(assignment) => later.extend(assignment.names().iter().map(text)),
            Stmt::LocalFunction(other) => later.push(text(other.name())),
            _ => {}
        }
    }
    function.tokens().any(|token| {
        matches!(token.token().token_type(), TokenType::Identifier { .. }) && later.contains(&text(token))
    })
}

/// A part of a text with what is put into it.
fn spliced(source: &str, part: std::ops::Range<usize>, inserted: &[(usize, String)]) -> String {
    let (mut text, mut from) = (String::new(), part.start);
    for (at, more) in inserted.iter().filter(|(at, _)| part.contains(at)) {
        text.push_str(source.get(from..*at).unwrap_or_default());
        text.push_str(more);
        from = *at;
    }
    text.push_str(source.get(from..part.end).unwrap_or_default());
    text
}

fn inserted(tree: &Ast) -> Vec<(usize, String)> {
    let mut points = Points { functions: 0, inserted: Vec::new() };
    points.visit_ast(tree);
    points.inserted.sort_by_key(|(at, _)| *at);
    points.inserted
}

struct Points {
    /// Functions around.
    functions: usize,
    /// What comes where.
    inserted: Vec<(usize, String)>,
}

impl Visitor for Points {
    fn visit_function_body(&mut self, body: &FunctionBody) {
        self.functions += 1;
        let (opening, closing) = body.parameters_parentheses().tokens();
        let names = body.parameters().iter().filter_map(|parameter| match parameter {
            Parameter::Name(name) => Some(text(name)),
            _ => None,
        });
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            self.behind(closing, &point(line_of(opening), &names));
        }
    }

    fn visit_function_body_end(&mut self, _: &FunctionBody) {
        self.functions -= 1;
    }

    fn visit_stmt(&mut self, statement: &Stmt) {
        if self.functions == 0 {
            return;
        }
        let line = statement.start_position().map_or(0, |position| position.line() as u32);
        match statement {
            Stmt::LocalAssignment(assignment) => self.behind(assignment, &point(line, &declared(assignment))),
            Stmt::Assignment(assignment) => {
                let names = assignment.variables().iter().filter_map(|variable| match variable {
                    Var::Name(name) => Some(text(name)),
                    _ => None,
                });
                self.behind(assignment, &point(line, &names.collect::<Vec<_>>()));
            }
            Stmt::FunctionCall(_) | Stmt::Goto(_) => self.before(statement, line),
            Stmt::If(decision) => self.arms(decision),
            Stmt::While(repeated) => self.behind(repeated.do_token(), &decided(&[(line, true)])),
            Stmt::NumericFor(repeated) => {
                self.behind(repeated.do_token(), &point(line, &[text(repeated.index_variable())]));
            }
            Stmt::GenericFor(repeated) => {
                let names: Vec<String> = repeated.names().iter().map(text).collect();
                self.behind(repeated.do_token(), &point(line, &names));
            }
            _ => {}
        }
    }

    fn visit_last_stmt(&mut self, statement: &LastStmt) {
        let line = statement.start_position().map_or(0, |position| position.line() as u32);
        if self.functions > 0 {
            self.before(statement, line);
        }
    }
}

impl Points {
    fn behind(&mut self, node: &impl Node, text: &str) {
        // What ends with a bracket has its end before it, as the parser tells it.
        let ends = node.tokens().filter_map(Node::end_position);
        if let Some(at) = ends.map(full_moon::tokenizer::Position::bytes).max() {
            self.inserted.push((at, text.to_owned()));
        }
    }

    fn before(&mut self, node: &impl Node, line: u32) {
        if let Some(at) = node.start_position() {
            self.inserted.push((at.bytes(), point(line, &[])));
        }
    }

    /// Each arm begins with how the conditions came out that lead to it.
    fn arms(&mut self, decision: &If) {
        let line =
            |condition: &Expression| condition.start_position().map_or(0, |position| position.line() as u32);
        let mut before = vec![(line(decision.condition()), true)];
        self.behind(decision.then_token(), &decided(&before));
        for arm in decision.else_if().into_iter().flatten() {
            before.iter_mut().for_each(|(_, holds)| *holds = false);
            before.push((line(arm.condition()), true));
            self.behind(arm.then_token(), &decided(&before));
        }
        before.iter_mut().for_each(|(_, holds)| *holds = false);
        match decision.else_token() {
            Some(token) => self.behind(token, &decided(&before)),
            None => {
                let text = format!(" else{}", decided(&before));
                if let Some(at) = decision.end_token().start_position() {
                    self.inserted.push((at.bytes(), text));
                }
            }
        }
    }
}

/// The variables of a declaration; functions have nothing to tell.
fn declared(assignment: &LocalAssignment) -> Vec<String> {
    let values: Vec<&ast::Expression> = assignment.expressions().iter().collect();
    let names = assignment.names().iter().enumerate();
    let told = names.filter(|(place, _)| !matches!(values.get(*place), Some(Expression::Function(_))));
    told.map(|(_, name): (_, &TokenReference)| text(name)).collect()
}

fn point(line: u32, names: &[String]) -> String {
    let mut text = format!(" do {POINT}({line}");
    for name in names.iter().take(MOST_NAMES) {
        let _ = write!(text, ",\"{name}\",{name}");
    }
    text.push_str(") end ");
    text
}

fn decided(conditions: &[(u32, bool)]) -> String {
    let points = conditions.iter().map(|(line, holds)| format!("{POINT}({line},{holds}) "));
    format!(" do {}end ", points.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_between_statements_and_move_no_line() {
        let text = "local top = 1\nfunction f(p, ...)\n  local a, b = 1, function() return 2 end; (f)()\n\
                    \x20 if a then return b elseif p then p.x, a = 1, 2 end\n  for i = 1, 2 do break end\n\
                    \x20 repeat local z = 1 until z\n  ::l:: while a do goto l end\n  local c = t[b] t[1] = { [c] = t[a] }\nend\n";
        let with = points(text).unwrap();
        assert_eq!(with.lines().count(), text.lines().count());
        for (line, wanted) in [
            (1, "local top = 1"),
            (2, "function f(p, ...) do sidestep_traced(2,\"p\",p) end "),
            (
                3,
                "  local a, b = 1, function()  do sidestep_traced(3) end return 2 end do sidestep_traced(3,\"a\",a) end ;  \
                 do sidestep_traced(3) end (f)()",
            ),
            (
                4,
                "  if a then do sidestep_traced(4,true) end   do sidestep_traced(4) end return b elseif p then \
                 do sidestep_traced(4,false) sidestep_traced(4,true) end  p.x, a = 1, 2 do sidestep_traced(4,\"a\",a) \
                 end   else do sidestep_traced(4,false) sidestep_traced(4,false) end end",
            ),
            (5, "  for i = 1, 2 do do sidestep_traced(5,\"i\",i) end   do sidestep_traced(5) end break end"),
            (6, "  repeat local z = 1 do sidestep_traced(6,\"z\",z) end  until z"),
            (7, "  ::l:: while a do do sidestep_traced(7,true) end   do sidestep_traced(7) end goto l end"),
            (
                8,
                "  local c = t[b] do sidestep_traced(8,\"c\",c) end  t[1] = { [c] = t[a] } do sidestep_traced(8) end ",
            ),
        ] {
            assert_eq!(with.lines().nth(line - 1), Some(wanted));
        }
        assert!(points("x = = 1").is_err());
    }

    #[test]
    fn twins_stand_behind_on_as_many_lines() {
        let text = "local n = 0\nlocal function g(x)\n  return x\nend\nfunction T.a:b(y)\n  n = y\nend\n\
                    function h() return later end\nlocal later = 2\nfunction T.c() end";
        let with = twins(text).unwrap();
        let lines: Vec<&str> = with.lines().collect();
        assert_eq!(&lines[..10], text.lines().collect::<Vec<_>>());
        assert_eq!(
            lines[11],
            "do local sidestep_twin=... sidestep_twin(2,function(x) do sidestep_traced(2,\"x\",x) end "
        );
        assert!(
            lines[13]
                .starts_with("end,function() return g end,function(sidestep_twin) g=sidestep_twin end) end")
        );
        assert!(lines[14].contains("sidestep_twin(5,function(self,y) do"), "{}", lines[14]);
        assert!(lines[16].contains("return T.a.b end") && !with[text.len()..].contains("later"), "{with}");
        assert!(lines[19].contains("sidestep_twin(10,function() end,function() return T.c end"), "{with}");
        assert_eq!(twins("x = 1"), None);
        assert_eq!(twins("function f() end\nreturn 1"), None);
    }
}
