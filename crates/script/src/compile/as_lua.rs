//! What Lua does that a reader may not expect: in the kernel it is the same, or left to Lua.

use super::tests::{both, compile};

/// What both tiers return for a packet whose first octets are 1, 2, 3, 4; none if the script fails.
fn verdicts(text: &str) -> [Option<i64>; 2] {
    let mut frame = vec![0; 60];
    frame[..4].copy_from_slice(&[1, 2, 3, 4]);
    both(text, &frame).map(|(verdict, _)| verdict)
}

fn of(before: &str, body: &str) -> String {
    format!("{before}\nfunction process_packet(p)\n{body}\nend")
}

fn refusal(text: &str) -> String {
    compile(text).expect_err(text)[0].reason.clone()
}

#[test]
fn a_table_with_gaps_has_no_length() {
    let ports = "PORTS = { 22, 23, 80, 443 }";
    assert_eq!(verdicts(&of(ports, "return #PORTS & 1")), [Some(0); 2]);
    assert_eq!(verdicts(&of(&format!("{ports} PORTS[4] = nil"), "return #PORTS & 1")), [Some(1); 2]);
    assert_eq!(verdicts(&of("T = { x = 1, [0] = 2, [-3] = 4 }", "return #T")), [Some(0); 2]);
    for gap in ["PORTS[2] = nil", "PORTS[1] = nil", "PORTS[9] = 1"] {
        let reason = refusal(&of(&format!("{ports} {gap}"), "return #PORTS & 1"));
        assert!(reason.contains("a table with gaps"), "{reason}");
    }
}

#[test]
fn what_a_counter_is_given_is_no_nil() {
    let before =
        "local t, c = nf.table { name = 't', key = 'int' }, nf.counter 'c'\nlocal function none() end";
    for (given, verdict) in
        [("", Some(1)), ("none()", Some(1)), ("1", Some(1)), ("t:get(7)", None), ("nil", None)]
    {
        let text = of(before, &format!("return c:add({given})"));
        assert_eq!(verdicts(&text), [verdict; 2], "{given}");
    }
}

#[test]
fn objects_that_are_alike_are_not_equal() {
    let before = "A, B, C = { 1 }, { 1 }, { 2 }
        c, d, e = nf.counter 'c', nf.counter 'c', nf.counter 'e'
        function f() end
        X, Y = 1.5, 1.0";
    for (condition, verdict) in [
        ("A == C", 0),
        ("c == e", 0),
        ("A == c", 0),
        ("A == 1", 0),
        ("A == nil", 0),
        ("f == process_packet", 0),
        ("packet_ip == packet_ip", 1),
        ("math.min == math.min", 1),
        ("X ~= nil", 1),
    ] {
        let text = of(before, &format!("return {condition} and 1 or 0"));
        assert_eq!(verdicts(&text), [Some(verdict); 2], "{condition}");
    }
    for condition in ["A == B", "A == A", "c == d", "c ~= c", "f == f", "X == Y", "Y == 1", "1 == Y"] {
        let reason = refusal(&of(before, &format!("return {condition} and 1 or 0")));
        assert!(reason.contains(" is compared with "), "{condition}: {reason}");
    }
}

#[test]
fn loops_end_at_the_last_integer() {
    let large = "local x = p:get()[0] + (math.maxinteger - 5)";
    let small = "local x = math.mininteger + 5 - p:get()[0]";
    for (body, verdict) in [
        ("for i = math.maxinteger - 1, math.maxinteger do n = n + 1 end", 2),
        ("for i = math.maxinteger - 4, math.maxinteger, 3 do n = n + 1 end", 2),
        ("for i = math.mininteger, math.mininteger + 2 do n = n + 1 end", 3),
    ] {
        assert_eq!(
            verdicts(&of("", &format!("local n = 0 {body} return n & 1"))),
            [Some(verdict & 1); 2],
            "{body}"
        );
    }
    for body in [
        format!("{large} if x > math.maxinteger - 5 then for i = x, math.maxinteger do n = n + 1 end end"),
        format!("{large} for i = x, math.maxinteger, 2 do n = n + 1 end"),
        format!("{small} for i = x, math.mininteger, -1 do n = n + 1 end"),
    ] {
        match compile(&of("", &format!("local n = 0 {body} return n & 1"))) {
            Ok(_) => {
                assert_eq!(verdicts(&of("", &format!("local n = 0 {body} return n & 1")))[0], None, "{body}");
            }
            Err(refusals) => {
                let reason = &refusals[0].reason;
                assert!(
                    reason.contains("the end of the integers") || reason.contains("turns"),
                    "{body}: {reason}"
                );
            }
        }
    }
}

#[test]
fn several_targets_are_assigned_from_the_last_one_on() {
    for (body, verdict) in [
        ("local a a, a = 1, 0 return a", 1),
        ("local b, i = p:get(), p:get()[0] b[i], b[1] = 1, 0 return b[i]", 1),
        ("local a, b = 1, 0 a, b = b, a return a * 2 + b", 1),
        ("local a, b = 0 a, b = 1 return b == nil and a or 5", 1),
        ("local a a, a = 1 return a", 1),
        ("local a = 0 a = 1, 0 return a", 1),
    ] {
        assert_eq!(verdicts(&of("", body)), [Some(verdict); 2], "{body}");
    }
}

#[test]
fn libraries_are_what_they_are_not_what_they_are_called() {
    for (before, body, verdict) in [
        ("math.min, math.max = math.max, math.min", "return math.min(0, p:get()[0])", 1),
        ("local least = math.min", "return least(1, p:get()[1])", 1),
        ("local m = math math = nil", "return m.min(1, p:get()[1])", 1),
        ("function math.min() return 1 end", "return math.min(0, p:get()[0])", 1),
        ("math = { min = math.max }", "return math.min(0, p:get()[0])", 1),
        ("string = { lower = function() return 'x' end }", "return ('A'):lower() == 'a' and 1 or 0", 1),
    ] {
        assert_eq!(verdicts(&of(before, body)), [Some(verdict); 2], "{before}");
    }
    for before in
        ["function string.lower() return 'x' end", "getmetatable('').__index = { lower = tostring }"]
    {
        let reason = refusal(&of(before, "return ('A'):lower() == 'a' and 1 or 0"));
        assert!(reason.contains("has no method 'lower' in the kernel"), "{reason}");
    }
    let reason = refusal(&of("function other() math.min = math.max end", "return math.min(0, 1)"));
    assert!(reason.contains("a function changes the library 'math'"), "{reason}");
    let reason = refusal(&of("setmetatable(_G, { __index = function() return 1 end })", "return UNSET"));
    assert!(reason.contains("a table with a metatable"), "{reason}");
}

#[test]
fn another_environment_is_left_to_lua() {
    for (before, body) in [
        ("E = { NF_DROP = NF_ACCEPT }", "local _ENV = E return NF_DROP"),
        ("local _ENV = setmetatable({}, { __index = _G })", "return NF_DROP"),
        ("", "return _ENV.NF_DROP"),
        ("local function g(_ENV) return NF_DROP end", "return g { NF_DROP = 1 }"),
        ("function other() _ENV = {} end", "return NF_DROP"),
    ] {
        let reason = match super::compile(
            &crate::vm::Script::new("test.lua", &of(before, body)),
            crate::host::NoHost,
            super::tests::RESULTS,
            super::AttachType::Interface { has_link: true },
        ) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{before} {body}"),
        };
        assert!(reason.contains("'_ENV'"), "{reason}");
    }
}

#[test]
fn what_is_not_in_scope_at_the_end_is_not_known() {
    for text in [
        "do local on = false function process_packet(p) if on then return 1 end return 0 end end",
        "local on = false function process_packet(p) if on then return 1 end return 0 end local on = true",
        // What the file returns is not its variables.
        "local on = false function process_packet(p) if on then return 1 end return 0 end return true",
        "local on = false function process_packet(p) if on then return 1 end return 0 end if p == nil then return true end",
    ] {
        let reason = refusal(text);
        assert!(reason.contains("'on' of line 1 is not in scope at the end"), "{reason}");
    }
}

#[test]
fn a_table_that_another_function_may_change_is_left_to_lua() {
    let filter = "function filter(p) return BLOCKED[p:get()[0]] and NF_DROP or NF_ACCEPT end";
    let tests = "function test_it() BLOCKED[1] = true end";
    let set =
        "local function set(list) local t = {} for _, one in next, list do t[one] = true end return t end";
    let compiled = |before: &str, other: &str| {
        let mut script = crate::vm::Script::new("test.lua", &format!("{before}\n{filter}\n{other}"));
        "filter".clone_into(&mut script.function);
        let place = super::AttachType::Interface { has_link: true };
        let compiled = super::compile(&script, crate::host::NoHost, super::tests::RESULTS, place);
        compiled.map(drop).map_err(|error| error.to_string())
    };
    for (before, other) in [
        ("BLOCKED = {}", ""),
        ("BLOCKED = {}", tests),
        (
            "BLOCKED = { [7] = true }",
            "function learn(p) local flow = p:flow() flow.seen = 1 p:get()[0] = 1 end",
        ),
        (&*format!("{set} BLOCKED = set {{ 7 }}"), "function other(p) return NF_DROP end"),
        // Called by the top level alone.
        (
            "local function made(by) local t = { of = {} } t.of[1] = by return t end BLOCKED = made(2)",
            "function other(p) return NF_DROP end",
        ),
    ] {
        assert_eq!(compiled(before, other), Ok(()), "{before} {other}");
    }
    for (before, other) in [
        ("BLOCKED = {}", "function learn(p) BLOCKED[p:get()[0]] = true end"),
        ("BLOCKED = {}", "function learn(p) local b = BLOCKED b[p:get()[0]] = true end"),
        ("BLOCKED = {}", "function learn(p) table.insert(BLOCKED, 1) end"),
        ("BLOCKED = {}", "function learn(p) rawset(BLOCKED, 1, 1) end"),
        ("BLOCKED = {}", "function learn(p) _G['BLOCKED'] = { 1 } end"),
        ("BLOCKED = {}", "function learn(p) local t = p:flow() t = BLOCKED t[1] = 1 end"),
        ("BLOCKED = {} local function set(t) t[1] = 1 end", "function learn(p) set(BLOCKED) end"),
        ("BLOCKED = {} local function set(t) t[1] = 1 end ALL = { set }", ""),
        (
            "BLOCKED = {} local function set() BLOCKED[1] = 1 end local function more() set() end",
            "T = { f = function() more() end }",
        ),
        (
            "BLOCKED = {} H = { flow = function() return BLOCKED end }",
            "function learn(p) local t = H:flow() t[1] = 1 end",
        ),
        (
            "BLOCKED = {} local function made() local t = BLOCKED return function(k) t[k] = 1 end end",
            "function learn(p) made()(1) end",
        ),
    ] {
        let why = compiled(before, other).expect_err(other);
        assert!(why.contains("may change: see line"), "{other}: {why}");
    }
    // What it says itself is not compiled, so that Lua has the whole function.
    let why = compiled("BLOCKED = {}", "function filter(p) BLOCKED[1] = 1 return BLOCKED[1] end")
        .expect_err("it sets an entry");
    assert!(why.contains("a field of a table is assigned to"), "{why}");
    // A number that is reached by the name of the table of all names.
    let limit = |other: &str| {
        compile(&of(&format!("LIMIT = 1\nfunction other() {other} end"), "return LIMIT"))
            .map(drop)
            .map_err(|refusals| refusals[0].reason.clone())
    };
    assert_eq!(limit("T = 1 x.y = 1"), Ok(()));
    assert!(limit("_G[1] = 1").expect_err("it may be any").contains("'LIMIT' may change"));
}

#[test]
fn a_local_variable_is_read_where_it_is_used() {
    for (body, verdict) in [
        ("local i = 0 local function f() i = 1 return 0 end return i + f()", 1),
        ("local i = 0 local function f() i = 1 return 1 end return i == f() and 1 or 0", 1),
        ("local i = 0 local function f() i = 1 return 1 end return i < f() and 0 or 1", 1),
        ("local b = p:get() local function f() b = p:raw(1, 2):get() return 0 end return b[f()] - 1", 1),
        ("local b, i = p:get(), 0 local function f() i = 3 return 1 end b[i] = f() return b[3]", 1),
        ("local b, i = p:get(), 0 local function f() i = 3 return 1 end b[i], i = f(), 9 return b[3] - 3", 1),
        // Of another function it is read at once, as a value that is passed on is.
        (
            "local i = 0 local function f() i = 1 return 1 end local function g() return i + f() end return g()",
            1,
        ),
        ("local i = 0 local function f() i = 9 return 1 end return math.max(i, f())", 1),
        ("local a, i = nil, 1 local function f() i = 9 return 1 end return ((a or i) + 0 * f())", 1),
    ] {
        assert_eq!(verdicts(&of("", body)), [Some(verdict); 2], "{body}");
    }
}
