/*-------------------------------------------------------------------------
 *
 * rocks.cc
 *	  The border to RocksDB (see rocks.h).
 *
 * RocksDB may throw where memory runs out; an exception that reached the
 * server's C would end the process, and with it the cluster.  So nothing but
 * this file calls RocksDB, and every call is inside a try.  Its threads are
 * started with all signals blocked: a handler of the server must never run in
 * one of them.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <lz4.h>

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include "state/rocks.h"

using rocksdb::Slice;
using rocksdb::Status;

struct Rocks
{
	std::unique_ptr<rocksdb::DB> db;
	rocksdb::WriteBatch batch;
	std::vector<std::pair<std::string, std::string>> deleted;	/* ranges, in the batch */
};

/*
 * Files that are being written.  A thread does that, some keys at a time:
 * compressing them takes as long as what the caller does to put the next ones
 * into order.  Another one waits until a file is on disk.
 */
class RocksLoad
{
  public:
	RocksLoad(rocksdb::DB *db, const std::string &path) : db_(db), path_(path), options_(db->GetOptions()) {}
	~RocksLoad();
	Status Put(const Slice &key, const Slice &value);
	Status Finish();			/* makes them part of the database */

  private:
	using Pairs = std::vector<std::pair<std::string, std::string>>;

	Status HandOver();
	Status Write();				/* in the thread */
	Status OpenFile(const std::string &sample);
	Status FinishFile();

	rocksdb::DB *db_;
	std::string path_;
	Pairs		gathered_;
	size_t		gathered_bytes_ = 0;
	std::future<Status> thread_;

	/* the thread's, while there is one */
	rocksdb::Options options_;
	Pairs		pairs_;
	std::unique_ptr<rocksdb::SstFileWriter> writer_;	/* none: the next key begins a file */
	size_t		file_bytes_ = 0;
	std::vector<std::string> files_;
	std::future<Status> finishing_; /* the file before */
};

struct RocksScan
{
	std::string from;
	std::string to;
	Slice		upper;
	std::unique_ptr<rocksdb::Iterator> it;
	bool		started = false;
};

namespace
{
/* Blocks all signals while a thread may be started. */
class SignalsBlocked
{
  public:
	SignalsBlocked()
	{
		sigset_t	all;

		sigfillset(&all);
		pthread_sigmask(SIG_BLOCK, &all, &before_);
	}
	~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
	sigset_t	before_;
};

/*
 * What RocksDB has to say is dropped.  Nobody would look for it, and when its
 * file cannot be written to, the second message is an assertion that fails.
 */
class NoLog : public rocksdb::Logger
{
  public:
	using rocksdb::Logger::Logv;
	void Logv(const char *, va_list) override {}
};

int
fail(int what, const char *message, char **error)
{
	*error = strdup(message);
	return what;
}

int
fail(const Status &s, char **error)
{
	if (s.ok())
		return ROCKS_OK;
	if (s.IsNotFound())
		return ROCKS_NOT_FOUND;
	return fail(s.IsCorruption() ? ROCKS_DAMAGED : s.IsMemoryLimit() ? ROCKS_MEMORY : s.IsNoSpace() ? ROCKS_FULL : s.IsIOError() ? ROCKS_IO : ROCKS_OTHER,
				s.ToString().c_str(), error);
}

/* So many bytes are handed over to a thread at once; twice that is in memory. */
constexpr size_t LOAD_BYTES = 8 * 1024 * 1024;

/* So many go into a file, before compression. */
constexpr size_t LOAD_FILE_BYTES = 64 * 1024 * 1024;

/* By so many it is found out whether compression is worth its while. */
constexpr size_t SAMPLE_BYTES = 64 * 1024;

/* Names of such files, which RocksDB has no use for, and so does not delete. */
const char *const LOAD_NAME = "load-";

/* Rests of loads that were not ended. */
void
delete_loads(rocksdb::Env *env, const std::string &path)
{
	std::vector<std::string> names;

	if (env->GetChildren(path, &names).ok())
		for (const auto &name : names)
			if (name.rfind(LOAD_NAME, 0) == 0)
				(void) env->DeleteFile(path + "/" + name);
}

/* Runs fn, and makes an error code of whatever it throws. */
template <typename F>
int
guarded(char **error, F fn)
{
	*error = nullptr;
	try
	{
		return fn();
	}
	catch (const std::bad_alloc &)
	{
		return fail(ROCKS_MEMORY, "out of memory", error);
	}
	catch (const std::exception &e)
	{
		return fail(ROCKS_OTHER, e.what(), error);
	}
	catch (...)
	{
		return fail(ROCKS_OTHER, "unknown exception", error);
	}
}

rocksdb::Options
options_for(size_t cache, size_t write_buffer)
{
	rocksdb::Options options;
	rocksdb::BlockBasedTableOptions table;

	options.create_if_missing = true;
	options.compression = rocksdb::kLZ4Compression;
	options.write_buffer_size = write_buffer / 2;
	options.max_write_buffer_number = 2;
	options.max_background_jobs = 2;
	options.max_open_files = 128;
	options.max_file_opening_threads = 1;	/* with more, one that cannot be started ends the process */
	options.info_log = std::make_shared<NoLog>();
	options.stats_dump_period_sec = 0;
	options.stats_persist_period_sec = 0;
	options.paranoid_checks = true;
	options.level_compaction_dynamic_level_bytes = true;
	options.bytes_per_sync = 1024 * 1024;

	/* index and filter blocks count as cache: memory stays bounded however much there is */
	table.block_cache = rocksdb::NewLRUCache(cache, 4);
	table.cache_index_and_filter_blocks = true;
	table.pin_l0_filter_and_index_blocks_in_cache = true;
	table.block_size = 16 * 1024;
	table.format_version = 5;
	options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
	return options;
}
}								/* namespace */

Status
RocksLoad::Put(const Slice &key, const Slice &value)
{
	gathered_.emplace_back(key.ToString(), value.ToString());
	gathered_bytes_ += key.size() + value.size();
	return gathered_bytes_ < LOAD_BYTES ? Status::OK() : HandOver();
}

/* What a thread has thrown is thrown here. */
Status
end_of(std::future<Status> &thread)
{
	return thread.valid() ? thread.get() : Status::OK();
}

Status
RocksLoad::HandOver()
{
	SignalsBlocked blocked;
	Status s = end_of(thread_);

	if (!s.ok())
		return s;
	pairs_.swap(gathered_);
	gathered_.clear();
	gathered_bytes_ = 0;
	thread_ = std::async(std::launch::async, [this] { return Write(); });
	return s;
}

Status
RocksLoad::Write()
{
	Status s;

	for (auto pair = pairs_.begin(); s.ok() && pair != pairs_.end(); ++pair)
	{
		if (!writer_)
			s = OpenFile(pair->second);
		if (s.ok())
			s = writer_->Put(pair->first, pair->second);
		file_bytes_ += pair->first.size() + pair->second.size();
		if (s.ok() && file_bytes_ >= LOAD_FILE_BYTES)
			s = FinishFile();
	}
	return s;
}

/*
 * RocksDB would try to compress each block, and keep those as they are that do
 * not become an eighth smaller, as the hexadecimal digits of which much of
 * many tables consists about do.  That takes twice as long as all else here,
 * so it has to be worth a quarter.  Values of one file are much alike.
 */
bool
is_compressible(const std::string &value)
{
	int			len = static_cast<int>(std::min(value.size(), SAMPLE_BYTES));
	std::vector<char> room(LZ4_compressBound(len));

	return LZ4_compress_default(value.data(), room.data(), len, static_cast<int>(room.size())) < len - len / 4;
}

Status
RocksLoad::OpenFile(const std::string &sample)
{
	rocksdb::Options options = options_;

	if (!is_compressible(sample))
		options.compression = rocksdb::kNoCompression;
	files_.push_back(path_ + "/" + LOAD_NAME + std::to_string(files_.size()));
	file_bytes_ = 0;
	/* the next batch reads all of it, so it may well stay in the page cache */
	writer_.reset(new rocksdb::SstFileWriter(rocksdb::EnvOptions(options), options, nullptr, false));
	return writer_->Open(files_.back());
}

Status
RocksLoad::FinishFile()
{
	Status s = end_of(finishing_);
	std::shared_ptr<rocksdb::SstFileWriter> writer(std::move(writer_));

	if (s.ok())
		finishing_ = std::async(std::launch::async, [writer] { return writer->Finish(); });
	return s;
}

Status
RocksLoad::Finish()
{
	SignalsBlocked blocked;
	rocksdb::IngestExternalFileOptions options;
	Status s = HandOver();

	if (s.ok())
		s = end_of(thread_);
	if (s.ok() && writer_)
		s = FinishFile();
	if (s.ok())
		s = end_of(finishing_);
	options.move_files = true;
	options.failed_move_fall_back_to_copy = true;
	options.write_global_seqno = false;
	if (s.ok() && !files_.empty())
		s = db_->IngestExternalFile(files_, options);
	return s;
}

RocksLoad::~RocksLoad()
{
	if (thread_.valid())
		thread_.wait();
	if (finishing_.valid())
		finishing_.wait();
	writer_.reset();
	delete_loads(options_.env, path_);
}

int
rocks_open(const char *path, size_t cache, size_t write_buffer, Rocks **db, char **error)
{
	return guarded(error, [&] {
		SignalsBlocked blocked;
		rocksdb::Options options = options_for(cache, write_buffer);
		std::unique_ptr<Rocks> r(new Rocks);
		rocksdb::DB *raw = nullptr;

		options.env->SetBackgroundThreads(1, rocksdb::Env::LOW);
		options.env->SetBackgroundThreads(1, rocksdb::Env::HIGH);
		delete_loads(options.env, path);
		Status s;

		/* what has been made by then is lost, and its lock on the directory with it (no thread could be started, mostly) */
		try
		{
			s = rocksdb::DB::Open(options, path, &raw);
		}
		catch (const std::exception &e)
		{
			return fail(ROCKS_LOST, e.what(), error);
		}
		if (!s.ok())
			return fail(s, error);
		r->db.reset(raw);
		*db = r.release();
		return static_cast<int>(ROCKS_OK);
	});
}

void
rocks_close(Rocks *db)
{
	char	   *error;

	(void) guarded(&error, [&] {
		SignalsBlocked blocked;

		delete db;
		return static_cast<int>(ROCKS_OK);
	});
	free(error);
}

int
rocks_get(Rocks *db, const void *key, size_t len, char **value, size_t *value_len, char **error)
{
	return guarded(error, [&] {
		std::string found;
		Status s = db->db->Get(rocksdb::ReadOptions(), Slice(static_cast<const char *>(key), len), &found);

		if (!s.ok())
			return fail(s, error);
		*value = static_cast<char *>(malloc(found.size() + 1));
		if (*value == nullptr)
			return fail(ROCKS_MEMORY, "out of memory", error);
		memcpy(*value, found.data(), found.size());
		*value_len = found.size();
		return static_cast<int>(ROCKS_OK);
	});
}

int
rocks_put(Rocks *db, const void *key, size_t len, const void *value, size_t value_len, char **error)
{
	return guarded(error, [&] {
		return fail(db->batch.Put(Slice(static_cast<const char *>(key), len),
								  Slice(static_cast<const char *>(value), value_len)), error);
	});
}

int
rocks_delete(Rocks *db, const void *key, size_t len, char **error)
{
	return guarded(error, [&] { return fail(db->batch.Delete(Slice(static_cast<const char *>(key), len)), error); });
}

int
rocks_delete_range(Rocks *db, const void *from, size_t from_len, const void *to, size_t to_len, char **error)
{
	return guarded(error, [&] {
		db->deleted.emplace_back(std::string(static_cast<const char *>(from), from_len),
								 std::string(static_cast<const char *>(to), to_len));
		return fail(db->batch.DeleteRange(Slice(static_cast<const char *>(from), from_len),
										  Slice(static_cast<const char *>(to), to_len)), error);
	});
}

size_t
rocks_gathered(const Rocks *db)
{
	return db->batch.GetDataSize();
}

int
rocks_write(Rocks *db, char **error)
{
	return guarded(error, [&] {
		SignalsBlocked blocked;
		Status s = db->db->Write(rocksdb::WriteOptions(), &db->batch);

		db->batch.Clear();
		/* files that hold nothing else go at once, without compaction; if they do not, nothing is lost */
		if (s.ok())
			for (const auto &range : db->deleted)
			{
				Slice		from(range.first),
							to(range.second);

				(void) rocksdb::DeleteFilesInRange(db->db.get(), db->db->DefaultColumnFamily(), &from, &to, false);
			}
		db->deleted.clear();
		return fail(s, error);
	});
}

void
rocks_discard(Rocks *db)
{
	db->batch.Clear();
	db->deleted.clear();
}

int
rocks_load_begin(Rocks *db, const char *path, RocksLoad **load, char **error)
{
	return guarded(error, [&] {
		SignalsBlocked blocked;

		*load = new RocksLoad(db->db.get(), path);
		return static_cast<int>(ROCKS_OK);
	});
}

int
rocks_load_put(RocksLoad *load, const void *key, size_t len, const void *value, size_t value_len, char **error)
{
	return guarded(error, [&] {
		return fail(load->Put(Slice(static_cast<const char *>(key), len),
							  Slice(static_cast<const char *>(value), value_len)), error);
	});
}

int
rocks_load_end(RocksLoad *load, char **error)
{
	return guarded(error, [&] {
		SignalsBlocked blocked;
		std::unique_ptr<RocksLoad> l(load);

		return fail(l->Finish(), error);
	});
}

void
rocks_load_abort(RocksLoad *load)
{
	char	   *error;

	(void) guarded(&error, [&] {
		SignalsBlocked blocked;

		delete load;
		return static_cast<int>(ROCKS_OK);
	});
	free(error);
}

int
rocks_scan_begin(Rocks *db, const void *from, size_t from_len, const void *to, size_t to_len,
				 RocksScan **scan, char **error)
{
	return guarded(error, [&] {
		SignalsBlocked blocked;
		std::unique_ptr<RocksScan> s(new RocksScan);
		rocksdb::ReadOptions options;

		s->from.assign(static_cast<const char *>(from), from_len);
		s->to.assign(static_cast<const char *>(to), to_len);
		s->upper = Slice(s->to);
		options.iterate_upper_bound = &s->upper;
		options.readahead_size = 256 * 1024;
		options.fill_cache = false; /* each row is read once */
		s->it.reset(db->db->NewIterator(options));
		*scan = s.release();
		return static_cast<int>(ROCKS_OK);
	});
}

int
rocks_scan_next(RocksScan *scan, const char **key, size_t *key_len, const char **value, size_t *value_len, char **error)
{
	return guarded(error, [&] {
		if (scan->started)
			scan->it->Next();
		else
			scan->it->Seek(scan->from);
		scan->started = true;
		if (!scan->it->Valid())
		{
			Status s = scan->it->status();

			return s.ok() ? static_cast<int>(ROCKS_NOT_FOUND) : fail(s, error);
		}
		*key = scan->it->key().data();
		*key_len = scan->it->key().size();
		*value = scan->it->value().data();
		*value_len = scan->it->value().size();
		return static_cast<int>(ROCKS_OK);
	});
}

void
rocks_scan_end(RocksScan *scan)
{
	char	   *error;

	(void) guarded(&error, [&] {
		delete scan;
		return static_cast<int>(ROCKS_OK);
	});
	free(error);
}

uint64_t
rocks_property(Rocks *db, const char *name)
{
	char	   *error;
	uint64_t	result = 0;

	(void) guarded(&error, [&] {
		if (!db->db->GetIntProperty(name, &result))
			result = 0;
		return static_cast<int>(ROCKS_OK);
	});
	free(error);
	return result;
}

uint64_t
rocks_files(Rocks *db)
{
	char	   *error;
	uint64_t	result = 0;

	(void) guarded(&error, [&] {
		std::vector<rocksdb::LiveFileMetaData> files;

		db->db->GetLiveFilesMetaData(&files);
		result = files.size();
		return static_cast<int>(ROCKS_OK);
	});
	free(error);
	return result;
}
