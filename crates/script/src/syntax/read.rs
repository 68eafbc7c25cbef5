//! From the parser's tree to ours: names are resolved, numbers and strings are values, precedence is where it belongs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use full_moon::ast::{
    self, BinOp, Call, FunctionArgs, Index, LastStmt, Parameter, Prefix, Stmt, Suffix, UnOp, Var,
};
use full_moon::node::Node as _;
use full_moon::tokenizer::{StringLiteralQuoteType, TokenReference, TokenType};

use super::literal;
use super::tree::{
    Binary, Block, Chunk, Error, Expression, ExpressionKind, Function, FunctionId, Local, LocalId, Mention,
    Mentioned, Result, Statement, StatementKind, Target, Unary, Variable,
};

/// The tree of a chunk.
pub(super) fn chunk(tree: &ast::Ast) -> Result<Chunk> {
    let lines = (1, line_of(tree.eof()));
    let mut reader = Reader {
        chunk: Chunk {
            functions: Vec::new(),
            locals: Vec::new(),
            fields: BTreeSet::new(),
            unsettled: None,
            renamed: None,
            mentions: Vec::new(),
        },
        functions: Vec::new(),
        scopes: Vec::new(),
        made: HashMap::new(),
        entries: Vec::new(),
        uses: Vec::new(),
    };
    reader.function("the file".to_owned(), lines, true, |reader| {
        Ok((Vec::new(), reader.block(tree.nodes())?))
    })?;
    Ok(reader.settled())
}

pub(super) struct Reader {
    pub(super) chunk: Chunk,
    /// Those that we are in, from the outermost on.
    pub(super) functions: Vec<FunctionId>,
    /// Names in sight, of all of them.
    scopes: Vec<HashMap<Arc<str>, LocalId>>,
    /// What local variables begin with.
    pub(super) made: HashMap<LocalId, Made>,
    /// Entries that are set of what is no table of the top level, if nothing else says so.
    pub(super) entries: Vec<Entry>,
    /// Where local variables are read.
    pub(super) uses: Vec<Use>,
}

/// Where a value comes from.
#[derive(Clone)]
pub(super) enum Made {
    /// A method gave it.
    By(Arc<str>),
    /// It is a new table of this function.
    Here(FunctionId),
}

/// An entry that is set in functions, the innermost of which is last.
pub(super) struct Entry {
    pub(super) functions: Vec<FunctionId>,
    pub(super) line: u32,
    pub(super) of: Made,
    pub(super) local: Option<LocalId>,
}

/// A local variable that is read.
pub(super) struct Use {
    pub(super) local: LocalId,
    /// By which function.
    pub(super) by: FunctionId,
    /// To be called, and not as a value.
    pub(super) called: bool,
}

impl Reader {
    fn function(
        &mut self,
        name: String,
        lines: (u32, u32),
        variadic: bool,
        body: impl FnOnce(&mut Self) -> Result<(Vec<LocalId>, Block)>,
    ) -> Result<FunctionId> {
        let id = FunctionId(self.chunk.functions.len());
        self.chunk.functions.push(Function {
            name,
            outer: self.function_here(),
            lines,
            parameters: Vec::new(),
            variadic,
            variable: None,
            may_run: true,
            unsettles: None,
            reaches: None,
            body: Vec::new(),
        });
        self.functions.push(id);
        self.scopes.push(HashMap::new());
        let (parameters, body) = body(self)?;
        self.scopes.pop();
        self.functions.pop();
        let function = &mut self.chunk.functions[id.0];
        function.parameters = parameters;
        function.body = body;
        Ok(id)
    }

    fn function_body(
        &mut self,
        name: String,
        body: &ast::FunctionBody,
        line: u32,
        method: bool,
    ) -> Result<FunctionId> {
        let lines = (line, line_of(body.end_token()));
        let variadic = body.parameters().iter().any(|parameter| matches!(parameter, Parameter::Ellipsis(_)));
        self.function(name, lines, variadic, |reader| {
            let mut parameters = Vec::new();
            if method {
                parameters.push(reader.declare("self", line));
            }
            for parameter in body.parameters() {
                if let Parameter::Name(name) = parameter {
                    parameters.push(reader.declare(&text(name), line_of(name)));
                }
            }
            Ok((parameters, reader.statements(body.block())?))
        })
    }

    fn declare(&mut self, name: &str, line: u32) -> LocalId {
        let id = LocalId(self.chunk.locals.len());
        let name: Arc<str> = name.into();
        self.note_environment(&name, line);
        let function = self.function_here();
        self.chunk.locals.push(Local { name: name.clone(), line, assigned: false, function });
        self.scopes.last_mut().expect("declarations are in scopes").insert(name, id);
        id
    }

    pub(super) fn resolve(&self, name: &str) -> Variable {
        let local = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        local.map_or_else(|| Variable::Global(name.into()), |local| Variable::Local(*local))
    }

    pub(super) fn function_here(&self) -> FunctionId {
        self.functions.last().copied().unwrap_or(FunctionId(0))
    }

    fn mention(&mut self, what: Mentioned, name: impl Into<Arc<str>>, line: u32) {
        let function = self.function_here();
        self.chunk.mentions.push(Mention { what, name: name.into(), line, function });
    }

    /// A variable that is read, and whether that is to call it.
    fn read(&mut self, name: &TokenReference, called: bool) -> Expression {
        let variable = self.resolve(&text(name));
        let what = match variable {
            Variable::Local(local) => {
                self.uses.push(Use { local, by: self.function_here(), called });
                Mentioned::Local
            }
            Variable::Global(_) => Mentioned::Global,
        };
        self.note_environment(&text(name), line_of(name));
        self.mention(what, text(name), line_of(name));
        expression(line_of(name), ExpressionKind::Variable(variable))
    }

    fn assigned(&mut self, variable: &Variable, line: u32) {
        match variable {
            Variable::Local(local) => self.chunk.locals[local.0].assigned = true,
            Variable::Global(name) => self.mention(Mentioned::SetGlobal, name.clone(), line),
        }
    }

    fn note_field(&mut self, object: &Expression, name: &TokenReference) {
        let outer = match &*object.kind {
            ExpressionKind::Variable(Variable::Local(local)) => {
                self.chunk.locals[local.0].function == FunctionId(0)
            }
            ExpressionKind::Variable(Variable::Global(_)) => true,
            _ => false,
        };
        if self.functions.len() > 1 && !outer {
            self.chunk.fields.insert(text(name).into());
        }
    }

    // Statements

    fn block(&mut self, block: &ast::Block) -> Result<Block> {
        self.scopes.push(HashMap::new());
        let statements = self.statements(block);
        self.scopes.pop();
        statements
    }

    fn statements(&mut self, block: &ast::Block) -> Result<Block> {
        let mut statements = Vec::new();
        for statement in block.stmts() {
            let line = statement.start_position().map_or(0, |position| position.line() as u32);
            statements.push(Statement { line, kind: self.statement(statement, line)? });
        }
        match block.last_stmt() {
            Some(LastStmt::Break(token)) => {
                statements.push(Statement { line: line_of(token), kind: StatementKind::Break });
            }
            Some(LastStmt::Return(result)) => {
                let kind = StatementKind::Return(self.expressions(result.returns())?);
                statements.push(Statement { line: line_of(result.token()), kind });
            }
            Some(other) => return Err(unknown(other)),
            None => {}
        }
        Ok(statements)
    }

    fn statement(&mut self, statement: &Stmt, line: u32) -> Result<StatementKind> {
        Ok(match statement {
            Stmt::Assignment(assignment) => {
                let values = self.expressions(assignment.expressions())?;
                let targets = assignment.variables().iter().map(|variable| self.target(variable));
                StatementKind::Assign(targets.collect::<Result<_>>()?, values)
            }
            Stmt::LocalAssignment(assignment) => {
                // The values do not see the names.
                let values = self.expressions(assignment.expressions())?;
                let names = assignment.names().iter().map(|name| self.declare(&text(name), line_of(name)));
                let names: Vec<LocalId> = names.collect();
                for (name, value) in names.iter().zip(&values) {
                    let made = match &*value.kind {
                        ExpressionKind::Method(_, method, _) => Made::By(method.clone()),
                        ExpressionKind::Table(_) => Made::Here(self.function_here()),
                        _ => continue,
                    };
                    self.made.insert(*name, made);
                }
                StatementKind::Local(names, values)
            }
            Stmt::FunctionCall(call) => StatementKind::Call(self.suffixed(call.prefix(), call.suffixes())?),
            Stmt::Do(block) => StatementKind::Do(self.block(block.block())?),
            Stmt::If(decision) => self.decision(decision)?,
            Stmt::While(repeated) => {
                StatementKind::While(self.expression(repeated.condition())?, self.block(repeated.block())?)
            }
            Stmt::Repeat(repeated) => {
                self.scopes.push(HashMap::new());
                let body = self.statements(repeated.block())?;
                let until = self.expression(repeated.until())?;
                self.scopes.pop();
                StatementKind::Repeat(body, until)
            }
            Stmt::NumericFor(repeated) => {
                let from = self.expression(repeated.start())?;
                let to = self.expression(repeated.end())?;
                let step = repeated.step().map(|step| self.expression(step)).transpose()?;
                self.scopes.push(HashMap::new());
                let variable = self.declare(&text(repeated.index_variable()), line);
                let body = self.statements(repeated.block())?;
                self.scopes.pop();
                StatementKind::For { variable, from, to, step, body }
            }
            Stmt::GenericFor(repeated) => {
                self.expressions(repeated.expressions())?;
                self.scopes.push(HashMap::new());
                for name in repeated.names() {
                    self.declare(&text(name), line_of(name));
                }
                let body = self.statements(repeated.block())?;
                self.scopes.pop();
                StatementKind::ForIn(body)
            }
            Stmt::LocalFunction(function) => {
                // The body sees the name.
                let name = text(function.name());
                let local = self.declare(&name, line);
                let id = self.function_body(name, function.body(), line, false)?;
                self.chunk.functions[id.0].variable = Some(local);
                StatementKind::Local(vec![local], vec![expression(line, ExpressionKind::Function(id))])
            }
            Stmt::FunctionDeclaration(function) => self.declaration(function, line)?,
            Stmt::Goto(goto) => StatementKind::Goto(text(goto.label_name()).into()),
            Stmt::Label(_) => StatementKind::Label,
            other => return Err(unknown(other)),
        })
    }

    fn decision(&mut self, decision: &ast::If) -> Result<StatementKind> {
        let mut arms = vec![(self.expression(decision.condition())?, self.block(decision.block())?)];
        for arm in decision.else_if().into_iter().flatten() {
            arms.push((self.expression(arm.condition())?, self.block(arm.block())?));
        }
        let rest = decision.else_block().map(|block| self.block(block)).transpose()?;
        Ok(StatementKind::If(arms, rest.unwrap_or_default()))
    }

    fn declaration(&mut self, function: &ast::FunctionDeclaration, line: u32) -> Result<StatementKind> {
        let name = function.name();
        let mut names = name.names().iter();
        let first = names.next().ok_or_else(|| unknown(function))?;
        let mut keys: Vec<_> = names.collect();
        keys.extend(name.method_name());
        let method = name.method_name().is_some();
        let shown = name.to_string().trim().to_owned();
        let variable = self.resolve(&text(first));
        let target = match keys.split_last() {
            None => {
                self.assigned(&variable, line);
                Target::Variable(variable)
            }
            Some((last, path)) => {
                self.mention(Mentioned::Key, text(last), line);
                if self.functions.len() > 1 {
                    self.unsettle(line);
                }
                let mut object = expression(line, ExpressionKind::Variable(variable));
                for key in path {
                    object = expression(line, ExpressionKind::Index(object, string(key)));
                }
                self.note_library(&object, line);
                Target::Index(object, string(last))
            }
        };
        let id = self.function_body(shown, function.body(), line, method)?;
        Ok(StatementKind::Assign(vec![target], vec![expression(line, ExpressionKind::Function(id))]))
    }

    fn target(&mut self, variable: &Var) -> Result<Target> {
        if let Var::Name(name) = variable {
            self.note_reach(name, false);
            self.note_environment(&text(name), line_of(name));
            let target = self.resolve(&text(name));
            self.assigned(&target, line_of(name));
            return Ok(Target::Variable(target));
        }
        let read = self.variable(variable)?;
        Ok(match *read.kind {
            ExpressionKind::Index(object, key) => {
                if let ExpressionKind::String(name) = &*key.kind {
                    self.mention(Mentioned::Key, String::from_utf8_lossy(name), read.line);
                }
                if self.functions.len() > 1 {
                    self.note_entry(&object, read.line);
                }
                self.note_library(&object, read.line);
                Target::Index(object, key)
            }
            _ => return Err(unknown(variable)),
        })
    }

    // Expressions

    fn expressions<'a>(
        &mut self,
        list: impl IntoIterator<Item = &'a ast::Expression>,
    ) -> Result<Vec<Expression>> {
        list.into_iter().map(|one| self.expression(one)).collect()
    }

    fn expression(&mut self, read: &ast::Expression) -> Result<Expression> {
        let line = read.start_position().map_or(0, |position| position.line() as u32);
        let kind = match read {
            ast::Expression::BinaryOperator { lhs, binop, rhs } => {
                ExpressionKind::Binary(binary(binop)?, self.expression(lhs)?, self.expression(rhs)?)
            }
            ast::Expression::UnaryOperator { unop, expression } => {
                ExpressionKind::Unary(unary(unop)?, self.expression(expression)?)
            }
            ast::Expression::Parentheses { expression, .. } => {
                let inner = self.expression(expression)?;
                match *inner.kind {
                    ExpressionKind::Call(..) | ExpressionKind::Method(..) | ExpressionKind::Rest => {
                        ExpressionKind::One(inner)
                    }
                    kind => kind,
                }
            }
            ast::Expression::Function(function) => {
                let name = format!("the function at line {line}");
                ExpressionKind::Function(self.function_body(name, function.body(), line, false)?)
            }
            ast::Expression::FunctionCall(call) => return self.suffixed(call.prefix(), call.suffixes()),
            ast::Expression::TableConstructor(table) => self.table(table)?,
            ast::Expression::Number(token) => literal::number(&text(token)).ok_or_else(|| unknown(token))?,
            ast::Expression::String(token) => *string(token).kind,
            ast::Expression::Symbol(token) => match text(token).as_str() {
                "nil" => ExpressionKind::Nil,
                "true" => ExpressionKind::Boolean(true),
                "false" => ExpressionKind::Boolean(false),
                "..." => ExpressionKind::Rest,
                _ => return Err(unknown(token)),
            },
            ast::Expression::Var(variable) => return self.variable(variable),
            other => return Err(unknown(other)),
        };
        Ok(expression(line, kind))
    }

    fn variable(&mut self, variable: &Var) -> Result<Expression> {
        match variable {
            Var::Name(name) => {
                self.note_reach(name, false);
                Ok(self.read(name, false))
            }
            Var::Expression(read) => {
                if let Prefix::Name(name) = read.prefix() {
                    self.note_reach(name, false);
                }
                self.suffixed(read.prefix(), read.suffixes())
            }
            other => Err(unknown(other)),
        }
    }

    fn suffixed<'a>(
        &mut self,
        prefix: &Prefix,
        suffixes: impl Iterator<Item = &'a Suffix>,
    ) -> Result<Expression> {
        let mut suffixes = suffixes.peekable();
        let called = matches!(suffixes.peek(), Some(Suffix::Call(Call::AnonymousCall(_))));
        let mut object = match prefix {
            Prefix::Name(name) => {
                self.note_reach(name, true);
                self.read(name, called)
            }
            Prefix::Expression(inner) => self.expression(inner)?,
            other => return Err(unknown(other)),
        };
        for suffix in suffixes {
            let line = suffix.start_position().map_or(object.line, |position| position.line() as u32);
            let kind = match suffix {
                Suffix::Index(Index::Dot { name, .. }) => {
                    self.note_field(&object, name);
                    if let ExpressionKind::Variable(Variable::Global(of)) = &*object.kind {
                        self.mention(Mentioned::EntryOf(of.clone()), text(name), line);
                    }
                    ExpressionKind::Index(object, string(name))
                }
                Suffix::Index(Index::Brackets { expression, .. }) => {
                    ExpressionKind::Index(object, self.expression(expression)?)
                }
                Suffix::Call(Call::AnonymousCall(arguments)) => {
                    let arguments = self.arguments(arguments)?;
                    if is_module(&object, &arguments) {
                        self.reach(line);
                    }
                    ExpressionKind::Call(object, arguments)
                }
                Suffix::Call(Call::MethodCall(call)) => {
                    self.mention(Mentioned::Method, text(call.name()), line_of(call.name()));
                    ExpressionKind::Method(object, text(call.name()).into(), self.arguments(call.args())?)
                }
                other => return Err(unknown(other)),
            };
            object = expression(line, kind);
        }
        Ok(object)
    }

    fn arguments(&mut self, arguments: &FunctionArgs) -> Result<Vec<Expression>> {
        match arguments {
            FunctionArgs::Parentheses { arguments, .. } => self.expressions(arguments),
            FunctionArgs::String(token) => Ok(vec![string(token)]),
            FunctionArgs::TableConstructor(table) => Ok(vec![expression(
                table.start_position().map_or(0, |position| position.line() as u32),
                self.table(table)?,
            )]),
            other => Err(unknown(other)),
        }
    }

    fn table(&mut self, table: &ast::TableConstructor) -> Result<ExpressionKind> {
        // No table is made in the kernel but for fields of a log; and there may be functions in it.
        let mut named = Some(Vec::new());
        for field in table.fields() {
            match field {
                ast::Field::ExpressionKey { key, value, .. } => {
                    self.expression(key)?;
                    self.expression(value)?;
                    named = None;
                }
                ast::Field::NameKey { key, value, .. } => {
                    self.mention(Mentioned::Key, text(key), line_of(key));
                    let value = self.expression(value)?;
                    if let ("name", ExpressionKind::String(name)) = (text(key).as_str(), &*value.kind) {
                        // It may be a protocol's.
                        self.mention(Mentioned::SetGlobal, String::from_utf8_lossy(name), value.line);
                    }
                    if let Some(named) = &mut named {
                        named.push((text(key).into(), value));
                    }
                }
                ast::Field::NoKey(value) => {
                    self.expression(value)?;
                    named = None;
                }
                other => return Err(unknown(other)),
            }
        }
        Ok(ExpressionKind::Table(named))
    }
}

/// Whether a call brings functions of another file. The module `test` has none where packets are.
fn is_module(function: &Expression, arguments: &[Expression]) -> bool {
    let ExpressionKind::Variable(Variable::Global(name)) = &*function.kind else { return false };
    let test =
        |argument: &Expression| matches!(&*argument.kind, ExpressionKind::String(name) if **name == *b"test");
    &**name == "require" && !matches!(arguments, [one] if test(one))
}

fn expression(line: u32, kind: ExpressionKind) -> Expression {
    Expression { line, kind: Box::new(kind) }
}

/// A string literal, or a name as the string that it stands for.
fn string(token: &TokenReference) -> Expression {
    let bytes = match token.token().token_type() {
        TokenType::StringLiteral { literal, quote_type, .. }
            if *quote_type == StringLiteralQuoteType::Brackets =>
        {
            literal::long_string(literal)
        }
        TokenType::StringLiteral { literal, .. } => literal::string(literal),
        _ => text(token).into_bytes(),
    };
    expression(line_of(token), ExpressionKind::String(bytes.into()))
}

pub(super) fn text(token: &TokenReference) -> String {
    token.token().to_string()
}

pub(super) fn line_of(token: &TokenReference) -> u32 {
    token.token().start_position().line() as u32
}

fn unary(operator: &UnOp) -> Result<Unary> {
    Ok(match operator {
        UnOp::Minus(_) => Unary::Negate,
        UnOp::Not(_) => Unary::Not,
        UnOp::Hash(_) => Unary::Length,
        UnOp::Tilde(_) => Unary::Complement,
        other => return Err(unknown(other)),
    })
}

fn binary(operator: &BinOp) -> Result<Binary> {
    Ok(match operator {
        BinOp::Plus(_) => Binary::Add,
        BinOp::Minus(_) => Binary::Subtract,
        BinOp::Star(_) => Binary::Multiply,
        BinOp::Slash(_) => Binary::Divide,
        BinOp::DoubleSlash(_) => Binary::FloorDivide,
        BinOp::Percent(_) => Binary::Modulo,
        BinOp::Caret(_) => Binary::Power,
        BinOp::TwoDots(_) => Binary::Concatenate,
        BinOp::DoubleLessThan(_) => Binary::ShiftLeft,
        BinOp::DoubleGreaterThan(_) => Binary::ShiftRight,
        BinOp::Ampersand(_) => Binary::BitAnd,
        BinOp::Tilde(_) => Binary::BitXor,
        BinOp::Pipe(_) => Binary::BitOr,
        BinOp::TwoEqual(_) => Binary::Equal,
        BinOp::TildeEqual(_) => Binary::NotEqual,
        BinOp::LessThan(_) => Binary::Less,
        BinOp::LessThanEqual(_) => Binary::LessOrEqual,
        BinOp::GreaterThan(_) => Binary::Greater,
        BinOp::GreaterThanEqual(_) => Binary::GreaterOrEqual,
        BinOp::And(_) => Binary::And,
        BinOp::Or(_) => Binary::Or,
        other => return Err(unknown(other)),
    })
}

/// What the parser knows and we do not: it has more languages than Lua 5.4.
fn unknown(node: &(impl full_moon::node::Node + ToString)) -> Error {
    let line = node.start_position().map_or(0, |position| position.line() as u32);
    Error { line, message: format!("not Lua 5.4: {}", node.to_string().trim()) }
}
