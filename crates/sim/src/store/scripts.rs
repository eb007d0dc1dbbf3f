//! Production scripts in Lua 5.1 as in Redis: no other globals than Redis', numbers truncated to
//! integers, tables up to their first hole.

use std::collections::HashMap;
use std::sync::Arc;

use mlua::{
    Error, Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue, Variadic,
};
use parking_lot::Mutex;
use redis::Value;

use super::commands::{self, Reply};
use super::keyspace::Keyspace;
use super::packed::{Unpacked, unpack};

/// Runs scripts on a keyspace.
#[derive(Debug)]
pub(super) struct Scripts {
    lua: Lua,
    /// Compiled scripts, by the address of their source.
    compiled: HashMap<usize, Function>,
}

/// Access to undefined globals and creation of globals are errors in Redis too.
const CLOSED: &str = "
setmetatable(_G, {
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. tostring(name)) end,
  __newindex = function(_, name) error('Attempt to modify a readonly table: ' .. tostring(name)) end,
})
";

impl Scripts {
    /// A runtime for scripts on this keyspace.
    ///
    /// # Errors
    /// When Lua cannot be set up.
    pub(super) fn new(keys: &Arc<Mutex<Keyspace>>) -> Result<Self, Error> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
        let globals = lua.globals();
        let redis = lua.create_table()?;
        let on = keys.clone();
        redis.set(
            "call",
            lua.create_function(move |lua, words| match command(&on, words) {
                Ok(reply) => to_lua(lua, reply),
                Err(error) => Err(Error::runtime(error)),
            })?,
        )?;
        let on = keys.clone();
        redis.set(
            "pcall",
            lua.create_function(move |lua, words| match command(&on, words) {
                Ok(reply) => to_lua(lua, reply),
                Err(error) => {
                    let table = lua.create_table()?;
                    table.set("err", error)?;
                    Ok(LuaValue::Table(table))
                }
            })?,
        )?;
        globals.set("redis", redis)?;
        let structs = lua.create_table()?;
        structs.set("unpack", lua.create_function(unpack_for_lua)?)?;
        globals.set("struct", structs)?;
        globals.set("KEYS", lua.create_table()?)?;
        globals.set("ARGV", lua.create_table()?)?;
        lua.load(CLOSED).exec()?;
        Ok(Self { lua, compiled: HashMap::new() })
    }

    /// Runs a script and returns its result as a Redis reply.
    ///
    /// # Errors
    /// Lua's error message.
    pub(super) fn run(
        &mut self,
        script: &'static str,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Result<Value, Error> {
        let globals = self.lua.globals();
        for (name, words) in [("KEYS", keys), ("ARGV", args)] {
            let words = words.iter().map(|word| self.lua.create_string(word));
            let words = words.collect::<Result<Vec<_>, _>>()?;
            globals.raw_set(name, self.lua.create_sequence_from(words)?)?;
        }
        let function = match self.compiled.get(&(script.as_ptr() as usize)) {
            Some(function) => function.clone(),
            None => {
                let function = self.lua.load(script).set_name("@user_script").into_function()?;
                self.compiled.insert(script.as_ptr() as usize, function.clone());
                function
            }
        };
        of_lua(function.call::<LuaValue>(())?)
    }
}

fn command(keys: &Mutex<Keyspace>, words: Variadic<LuaValue>) -> Result<Reply, String> {
    let words: Result<Vec<Vec<u8>>, String> = words.iter().map(word).collect();
    commands::run(&mut keys.lock(), &words?)
}

fn word(value: &LuaValue) -> Result<Vec<u8>, String> {
    match value {
        LuaValue::String(text) => Ok(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Ok(number.to_string().into_bytes()),
        LuaValue::Number(number) => Ok(number_text(*number).into_bytes()),
        other => Err(format!(
            "ERR Lua redis lib command arguments must be strings or integers, got {}",
            other.type_name()
        )),
    }
}

/// As `%.17g`: Redis formats numbers of scripts without loss.
fn number_text(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e17 {
        format!("{number:.0}")
    } else {
        format!("{number:e}")
    }
}

fn unpack_for_lua(
    lua: &Lua,
    (format, bytes, from): (mlua::LuaString, mlua::LuaString, Option<usize>),
) -> mlua::Result<MultiValue> {
    let unpacked = unpack(&format.as_bytes(), &bytes.as_bytes(), from.unwrap_or(1));
    let (found, next) = unpacked.map_err(Error::runtime)?;
    let mut values = Vec::with_capacity(found.len() + 1);
    for one in found {
        values.push(match one {
            Unpacked::Number(number) => LuaValue::Number(number),
            Unpacked::Text(text) => LuaValue::String(lua.create_string(text)?),
        });
    }
    values.push(LuaValue::Number(next as f64));
    Ok(values.into_iter().collect())
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<LuaValue> {
    Ok(match reply {
        Reply::Nil => LuaValue::Boolean(false),
        Reply::Okay => {
            let table = lua.create_table()?;
            table.set("ok", "OK")?;
            LuaValue::Table(table)
        }
        Reply::Int(number) => LuaValue::Number(number as f64),
        Reply::Bulk(text) => LuaValue::String(lua.create_string(text)?),
        Reply::Array(replies) => {
            let values: mlua::Result<Vec<_>> =
                replies.into_iter().map(|reply| to_lua(lua, reply)).collect();
            LuaValue::Table(lua.create_sequence_from(values?)?)
        }
    })
}

fn of_lua(value: LuaValue) -> mlua::Result<Value> {
    Ok(match value {
        LuaValue::Nil | LuaValue::Boolean(false) => Value::Nil,
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Integer(number) => Value::Int(number),
        LuaValue::Number(number) => Value::Int(number as i64),
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Table(table) => of_table(&table)?,
        other => return Err(Error::runtime(format!("a script returned a {}", other.type_name()))),
    })
}

fn of_table(table: &Table) -> mlua::Result<Value> {
    if let Some(error) = table.raw_get::<Option<mlua::LuaString>>("err")? {
        return Err(Error::runtime(error.to_string_lossy()));
    }
    if table.raw_get::<Option<mlua::LuaString>>("ok")?.is_some() {
        return Ok(Value::Okay);
    }
    let mut values = Vec::new();
    for index in 1.. {
        match table.raw_get::<LuaValue>(index)? {
            LuaValue::Nil => break,
            value => values.push(of_lua(value)?),
        }
    }
    Ok(Value::Array(values))
}
