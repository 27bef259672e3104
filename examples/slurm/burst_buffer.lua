-- Staging of jobs through Slurm's plug-in burst_buffer/lua: put this file next to slurm.conf, adapt
-- the values below, and set BurstBufferType=burst_buffer/lua.
--
--   #BB_LUA stage_in source=/home/me/input destination=me/run7/input
--   #BB_LUA stage_out source=me/run7/out destination=me/results/run7 class=bulk deadline=30m
--
-- stage_in copies a file or directory of the host of slurmctld into the staged tree before the job
-- starts. stage_out moves a path of the tree to a new destination in the tree after the job, and waits
-- until the backing directory has it; an explicit directory is published. Paths of the tree have no
-- `..`; they are relative to its root, or begin with MOUNT or BACKING below. A value with spaces stands
-- in double quotes, in which \" and \\ are a quote and a backslash. `class` is the class of the drain:
-- control, low-latency, best-effort, bulk or scavenger. After `deadline` (30s, 10m, 2h; default: none)
-- the job ends, and the drain continues; the time begins when the lines before it are done.
--
-- All copies and moves are done as the user of the job. slurmctld runs the hooks as SlurmUser, which
-- must be root: setpriv changes the user, and `clearway stage` answers only root and the user of the
-- mount.

-- The program, and the mount point of the staged tree on the host of slurmctld.
local CLEARWAY = "/usr/local/bin/clearway"
local MOUNT = "/ck"
-- The backing directory of the server, as users name it.
local BACKING = "/lustre/scratch"
-- The mount point on the nodes, which CLEARWAY_STAGE names: as in prolog.sh. %j is the job's identifier.
local OF_JOB = "/run/clearway-jobs/%j"
-- The directories of setpriv, getent, squeue, cp, mv, mkdir, test and timeout.
local PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

local DIRECTIVE = "#BB_LUA"
local KEYS = {
  stage_in = { source = true, destination = true },
  stage_out = { source = true, destination = true, class = true, deadline = true },
}
local CLASSES = {
  control = true, ["low-latency"] = true, ["best-effort"] = true, bulk = true, scavenger = true,
}
local SECONDS = { s = 1, m = 60, h = 3600 }
-- The exit status of timeout(1) for a command that took too long.
local TIMED_OUT = 124

-- Returns a word with the quotes that a shell needs.
local function quoted(word)
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- Runs the words of a command; returns its status and the first line that it printed.
local function run(words)
  local line = {}
  for at, word in ipairs(words) do line[at] = quoted(word) end
  local script = "PATH=" .. PATH .. "; export PATH; { " .. table.concat(line, " ")
    .. "; } 2>&1 </dev/null; printf '\\n%d\\n' \"$?\""
  local pipe = io.popen(script, "r")
  if not pipe then return 1, "cannot start a shell" end
  local first, last
  for said in pipe:lines() do
    if not first and said ~= "" then first = said:sub(1, 400) end
    last = said
  end
  pipe:close()
  local status = tonumber(last) or 1
  return status, first and first ~= last and first or ("status " .. status)
end

-- Runs a command as the user of a job.
local function run_as(uid, gid, words)
  local all = { "setpriv", "--reuid=" .. uid, "--regid=" .. gid, "--clear-groups", "--" }
  if run({ "getent", "passwd", uid }) == 0 then all[4] = "--init-groups" end
  for _, word in ipairs(words) do all[#all + 1] = word end
  return run(all)
end

-- Returns the user and the group of a job, which older releases (22.05) do not pass to most hooks.
local function owner(job_id, uid, gid)
  if uid and gid then return tostring(uid), tostring(gid) end
  local _, said = run({ "squeue", "--noheader", "--states=all", "--jobs=" .. job_id, "--format=%U %G" })
  return said:match("^(%d+) (%d+)$")
end

-- Returns the path below a directory, or nothing.
local function below(path, directory)
  if path == directory then return "" end
  if path:sub(1, #directory + 1) == directory .. "/" then return path:sub(#directory + 2) end
end

-- Returns the full path of a path in the tree, or nothing and what is wrong with it.
local function in_tree(path)
  local own = path
  if path:sub(1, 1) == "/" then
    own = below(path, MOUNT) or below(path, BACKING)
    if not own then return nil, "is not below " .. MOUNT .. " or " .. BACKING end
  end
  local names = {}
  for name in own:gmatch("[^/]+") do
    if name == ".." then return nil, "has a '..'" end
    if name ~= "." then names[#names + 1] = name end
  end
  if #names == 0 then return nil, "names the whole tree" end
  return MOUNT .. "/" .. table.concat(names, "/")
end

-- Reads one value: up to a space, or in quotes; returns it and what follows, or nothing and why not.
local function value(text)
  if text:sub(1, 1) ~= '"' then
    local word, rest = text:match('^([^%s"\\]+)(.*)$')
    if not word then return nil, "has no value" end
    return word, rest
  end
  local word, at = "", 2
  while at <= #text do
    local letter = text:sub(at, at)
    if letter == '"' then return word, text:sub(at + 1) end
    if letter == "\\" then
      at = at + 1
      letter = text:sub(at, at)
      if letter ~= '"' and letter ~= "\\" then return nil, 'has a \\ before neither " nor \\' end
    end
    word, at = word .. letter, at + 1
  end
  return nil, "has no closing quote"
end

-- Reads the keys of a directive; returns them, or nothing and why not.
local function options(verb, text)
  local found = {}
  while text:match("%S") do
    local key, rest = text:match("^%s+([a-z_]+)=(.*)$")
    if not key then return nil, "expects KEY=VALUE at '" .. text:gsub("^%s+", "") .. "'" end
    if not KEYS[verb][key] then return nil, "does not know " .. key .. "=" end
    if found[key] then return nil, "has " .. key .. "= twice" end
    found[key], text = value(rest)
    if not found[key] then return nil, key .. "= " .. text end
    if not text:match("^%s") and text ~= "" then return nil, "has no space behind " .. key .. "=" end
  end
  return found
end

-- Checks the values of a directive, and makes paths of the tree full ones; returns what is wrong.
local function check(verb, found)
  local paths = verb == "stage_in" and { "destination" } or { "source", "destination" }
  for _, key in ipairs({ "source", "destination" }) do
    if not found[key] or found[key] == "" then return "needs " .. key .. "=" end
  end
  for _, key in ipairs(paths) do
    local full, why = in_tree(found[key])
    if not full then return key .. "= " .. why end
    found[key] = full
  end
  if verb == "stage_in" and found.source:sub(1, 1) ~= "/" then
    return "source= is not a full path; begin it with /"
  end
  if found.class and not CLASSES[found.class] then
    return "has no class " .. found.class
      .. "; use control, low-latency, best-effort, bulk or scavenger"
  end
  if found.deadline then
    local count, unit = found.deadline:match("^([1-9]%d?%d?%d?%d?)([smh])$")
    if not count then return "deadline= is not a time; write it as 30s, 10m or 2h" end
    found.deadline = tonumber(count) * SECONDS[unit]
  end
end

-- Reads one line; returns a directive, nothing for a line that is none, or nothing and the error.
local function directive(line)
  local text = line:match("^" .. DIRECTIVE .. "(.*)$")
  if not text or text:match("^%w") then return nil end
  if text:find("%c") then
    return nil, "has a control character, such as a tab or a carriage return; remove it"
  end
  local verb, rest = text:match("^%s+([a-z_]+)(.*)$")
  if not verb or not KEYS[verb] then return nil, "expects stage_in or stage_out" end
  local found, why = options(verb, rest)
  why = why or check(verb, found)
  if why then return nil, verb .. " " .. why end
  found.verb = verb
  return found
end

-- Reads the directives of a job's script; returns them, or nothing and one sentence.
local function directives(job_script)
  local file, why = io.open(job_script, "r")
  if not file then return nil, "burst buffer: the script of the job cannot be read: " .. why end
  local all, number = {}, 0
  for line in file:lines() do
    number = number + 1
    local found, wrong = directive(line)
    if wrong then
      file:close()
      return nil, "burst buffer: line " .. number .. ": " .. wrong
    end
    all[#all + 1] = found
  end
  file:close()
  return all
end

-- Does `act` for each directive of one kind, as the owner of the job; returns what a hook returns.
local function each(verb, job_script, job, act)
  local all, why = directives(job_script)
  if not all then return slurm.ERROR, why end
  if #all == 0 then return slurm.SUCCESS end
  local uid, gid = owner(job.id, job.uid, job.gid)
  if not uid then return slurm.ERROR, "burst buffer: squeue does not know job " .. job.id end
  for _, found in ipairs(all) do
    local wrong = found.verb == verb and act(found, uid, gid)
    if wrong then return slurm.ERROR, "burst buffer: " .. verb .. ": " .. wrong end
  end
  return slurm.SUCCESS
end

-- Copies the source of a stage_in; returns what went wrong.
local function copy(found, uid, gid)
  local source, destination = found.source, found.destination
  if run_as(uid, gid, { "test", "-r", source }) ~= 0 then
    return "no source " .. source .. " that user " .. uid .. " can read"
  end
  local parent = destination:match("^(.*)/[^/]*$")
  local status, said = run_as(uid, gid, { "mkdir", "-p", "--", parent })
  if status == 0 then
    status, said = run_as(uid, gid, {
      "cp", "-R", "-P", "-T", "--preserve=mode,timestamps", "--", source, destination,
    })
  end
  if status == 0 then status, said = run({ CLEARWAY, "stage", "wait", "--", destination }) end
  if status ~= 0 then return said end
end

-- Moves the source of a stage_out to its destination; returns what went wrong.
local function move(found, uid, gid)
  local source, destination = found.source, found.destination
  -- Root acts below only on paths that belong to the user.
  local function is_own(path)
    return run_as(uid, gid, { "test", "-O", path, "-a", "!", "-L", path }) == 0
  end
  if not is_own(source) then
    -- Moved before: Slurm repeats a hook that the end of slurmctld interrupted.
    if is_own(destination) then return end
    return "no " .. source .. " of user " .. uid
  end
  if source == destination then return end
  local parent = destination:match("^(.*)/[^/]*$")
  local status, said = run_as(uid, gid, { "mkdir", "-p", "--", parent })
  if status == 0 and run_as(uid, gid, { "test", "-e", destination, "-o", "-L", destination }) == 0 then
    return destination .. " exists"
  end
  if status == 0 then
    status, said = run_as(uid, gid, { "mv", "-T", "-n", "--", source, destination })
  end
  if status ~= 0 then return said end
end

-- Runs a stage command for a destination, at most until its deadline.
local function stage(found, ...)
  local words = { CLEARWAY, "stage", ... }
  words[#words + 1] = "--"
  words[#words + 1] = found.destination
  if found.left then
    table.insert(words, 1, tostring(math.max(found.left - os.time(), 1)))
    table.insert(words, 1, "timeout")
  end
  return run(words)
end

-- Waits until the backing directory has a stage_out; returns what went wrong. Deadlines of all
-- lines count from `began`, so that they do not add up.
local function drain(found, began)
  if found.deadline then found.left = began + found.deadline end
  if found.class then
    local status, said = stage(found, "set-class", found.class)
    if status ~= 0 and status ~= TIMED_OUT then return said end
  end
  -- publish fails for a directory that is not explicit.
  local status, said = stage(found, "publish")
  if status ~= 0 and status ~= TIMED_OUT then status, said = stage(found, "wait", "--until", "stored") end
  if status ~= 0 and status ~= TIMED_OUT then return said end
  if status == TIMED_OUT then
    slurm.log_info("burst buffer: %s: the drain continues after the deadline", found.destination)
  end
end

-- At submission, in the process of slurmctld: reads only the script.
function slurm_bb_job_process(job_script, uid, gid, job_info)
  local all, why = directives(job_script)
  if not all then return slurm.ERROR, why end
  return slurm.SUCCESS
end

-- There are no pools: the size of the log is the limit.
function slurm_bb_pools()
  return slurm.SUCCESS
end

function slurm_bb_setup(job_id, uid, gid, pool, bb_size, job_script, job_info)
  return slurm.SUCCESS
end

function slurm_bb_data_in(job_id, job_script, uid, gid, job_info)
  return each("stage_in", job_script, { id = job_id, uid = uid, gid = gid }, copy)
end

-- data_in returns when the data is there.
function slurm_bb_test_data_in(job_id, job_script, uid, gid, job_info)
  return slurm.SUCCESS, ""
end

function slurm_bb_real_size(job_id, uid, gid, job_info)
  return slurm.SUCCESS
end

-- In the process of slurmctld: sets the environment of the job.
function slurm_bb_paths(job_id, job_script, path_file, uid, gid, job_info)
  local file, why = io.open(path_file, "w")
  if not file then return slurm.ERROR, "burst buffer: " .. why end
  file:write("CLEARWAY_STAGE=", (OF_JOB:gsub("%%j", job_id)), "\n")
  file:close()
  return slurm.SUCCESS
end

function slurm_bb_pre_run(job_id, job_script, uid, gid, job_info)
  return slurm.SUCCESS
end

function slurm_bb_post_run(job_id, job_script, uid, gid, job_info)
  return slurm.SUCCESS
end

-- All moves come before the first wait.
function slurm_bb_data_out(job_id, job_script, uid, gid, job_info)
  local job = { id = job_id, uid = uid, gid = gid }
  local status, why = each("stage_out", job_script, job, move)
  if status ~= slurm.SUCCESS then return status, why end
  local began = os.time()
  return each("stage_out", job_script, job, function(found) return drain(found, began) end)
end

-- data_out returns when the data is there, or at the deadline.
function slurm_bb_test_data_out(job_id, job_script, uid, gid, job_info)
  return slurm.SUCCESS, ""
end

-- Staged files stay in the tree until the user removes them.
function slurm_bb_job_teardown(job_id, job_script, hurry, uid, gid)
  return slurm.SUCCESS
end

-- For `scontrol show bbstat`.
function slurm_bb_get_status(uid, gid, ...)
  local pipe = io.popen(quoted(CLEARWAY) .. " stage status -- " .. quoted(MOUNT) .. " 2>&1", "r")
  if not pipe then return slurm.ERROR, "cannot start a shell" end
  local text = pipe:read("*a")
  pipe:close()
  return slurm.SUCCESS, text
end
