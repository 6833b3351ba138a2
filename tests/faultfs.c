// A FUSE file system that passes everything on and fails where it is told: for damage.py.
//
//   BASE=folder CTL=file faultfs -f MOUNTPOINT
//
// Lines of the control file: "OPERATION PERMILLE ERRNO [PART-OF-THE-PATH]", read again when it changes.

#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <dirent.h>
#include <sys/stat.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <pthread.h>
#include <time.h>
static char base[4096], ctl[4096];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static time_t seen; static long seen_ns;
static struct { char op[32]; int pm; int err; char match[160]; } rules[64]; static int nrules; static int nolink, norename2, shortw;
static __thread unsigned seed;
static void reload(void){ struct stat s; if(stat(ctl,&s)) {nrules=0;return;} if(s.st_mtim.tv_sec==seen&&s.st_mtim.tv_nsec==seen_ns) return;
 pthread_mutex_lock(&mu); seen=s.st_mtim.tv_sec; seen_ns=s.st_mtim.tv_nsec; FILE*f=fopen(ctl,"r"); nrules=0; nolink=norename2=shortw=0; char l[512];
 while(f&&fgets(l,512,f)){ char op[32],m[160]=""; int pm=0,e=0; if(sscanf(l,"%31s %d %d %159s",op,&pm,&e,m)<1) continue;
  if(!strcmp(op,"nolink")) nolink=pm?pm:EPERM; else if(!strcmp(op,"norename2")) norename2=pm?pm:EINVAL; else if(!strcmp(op,"shortw")) shortw=pm; else { strcpy(rules[nrules].op,op); rules[nrules].pm=pm; rules[nrules].err=e; strcpy(rules[nrules].match,m); nrules++; } }
 if(f)fclose(f); pthread_mutex_unlock(&mu);}
static int rnd(void){ if(!seed) seed=time(0)^(unsigned)(size_t)&seed; return rand_r(&seed)%1000; }
static int fault(const char*op,const char*path){ reload(); for(int i=0;i<nrules;i++) if(!strcmp(rules[i].op,op)&&(!rules[i].match[0]||(path&&strstr(path,rules[i].match)))&&rnd()<rules[i].pm) return -rules[i].err; return 0; }
#define P char p[8192]; snprintf(p,sizeof p,"%s%s",base,path)
#define F(op) { int e=fault(op,path); if(e) return e; }
#define R(x) return (x)==-1?-errno:0
static int x_getattr(const char*path,struct stat*s,struct fuse_file_info*fi){ F("stat"); if(fi) R(fstat(fi->fh,s)); P; R(lstat(p,s)); }
static int x_mkdir(const char*path,mode_t m){F("mkdir");P;R(mkdir(p,m));}
static int x_unlink(const char*path){F("unlink");P;R(unlink(p));}
static int x_rmdir(const char*path){F("rmdir");P;R(rmdir(p));}
static int x_rename(const char*from,const char*to,unsigned fl){const char*path=to;F("rename"); if(fl&&norename2) return -norename2; char a[8192],b[8192];snprintf(a,8192,"%s%s",base,from);snprintf(b,8192,"%s%s",base,to);R(renameat2(AT_FDCWD,a,AT_FDCWD,b,fl));}
static int x_link(const char*from,const char*to){const char*path=to;reload(); if(nolink) return -nolink; F("link");char a[8192],b[8192];snprintf(a,8192,"%s%s",base,from);snprintf(b,8192,"%s%s",base,to);R(link(a,b));}
static int x_open(const char*path,struct fuse_file_info*fi){F("open");P;int fd=open(p,fi->flags&~O_DIRECT);if(fd<0)return -errno;fi->fh=fd;return 0;}
static int x_create(const char*path,mode_t m,struct fuse_file_info*fi){F("create");P;int fd=open(p,(fi->flags|O_CREAT)&~O_DIRECT,m);if(fd<0)return -errno;fi->fh=fd;return 0;}
static int x_read(const char*path,char*b,size_t n,off_t o,struct fuse_file_info*fi){F("read");ssize_t r=pread(fi->fh,b,n,o); if(r>0){int e=fault("flip",path);if(e)b[rnd()%r]^=1;} return r<0?-errno:r;}
static int x_write(const char*path,const char*b,size_t n,off_t o,struct fuse_file_info*fi){F("write"); ssize_t r=pwrite(fi->fh,b,n,o);return r<0?-errno:r;}
static int x_fsync(const char*path,int d,struct fuse_file_info*fi){F("fsync");R(fsync(fi->fh));}
static int x_release(const char*path,struct fuse_file_info*fi){close(fi->fh);return 0;}
static int x_truncate(const char*path,off_t n,struct fuse_file_info*fi){F("truncate");if(fi)R(ftruncate(fi->fh,n));P;R(truncate(p,n));}
static int x_chmod(const char*path,mode_t m,struct fuse_file_info*fi){P;R(chmod(p,m));}
static int x_chown(const char*path,uid_t u,gid_t g,struct fuse_file_info*fi){P;R(lchown(p,u,g));}
static int x_utimens(const char*path,const struct timespec t[2],struct fuse_file_info*fi){P;R(utimensat(AT_FDCWD,p,t,AT_SYMLINK_NOFOLLOW));}
static int x_statfs(const char*path,struct statvfs*s){P;R(statvfs(p,s));}
static int x_opendir(const char*path,struct fuse_file_info*fi){F("opendir");P;DIR*d=opendir(p);if(!d)return -errno;fi->fh=(size_t)d;return 0;}
static int x_readdir(const char*path,void*buf,fuse_fill_dir_t fill,off_t o,struct fuse_file_info*fi,enum fuse_readdir_flags fl){F("readdir");DIR*d=(DIR*)fi->fh;rewinddir(d);struct dirent*e;while((e=readdir(d))){struct stat s={0};s.st_ino=e->d_ino;s.st_mode=e->d_type<<12;if(fill(buf,e->d_name,&s,0,0))break;}return 0;}
static int x_releasedir(const char*path,struct fuse_file_info*fi){closedir((DIR*)fi->fh);return 0;}
static int x_fsyncdir(const char*path,int d,struct fuse_file_info*fi){F("fsyncdir");return 0;}
static int x_symlink(const char*a,const char*path){P;R(symlink(a,p));}
static int x_readlink(const char*path,char*b,size_t n){P;ssize_t r=readlink(p,b,n-1);if(r<0)return -errno;b[r]=0;return 0;}
static void*x_init(struct fuse_conn_info*c,struct fuse_config*cfg){cfg->entry_timeout=0;cfg->attr_timeout=0;cfg->negative_timeout=0;cfg->use_ino=0;return 0;}
static struct fuse_operations ops={.init=x_init,.getattr=x_getattr,.mkdir=x_mkdir,.unlink=x_unlink,.rmdir=x_rmdir,.rename=x_rename,.link=x_link,.open=x_open,.create=x_create,.read=x_read,.write=x_write,.fsync=x_fsync,.release=x_release,.truncate=x_truncate,.chmod=x_chmod,.chown=x_chown,.utimens=x_utimens,.statfs=x_statfs,.opendir=x_opendir,.readdir=x_readdir,.releasedir=x_releasedir,.fsyncdir=x_fsyncdir,.symlink=x_symlink,.readlink=x_readlink};
int main(int c,char**v){ strcpy(base,getenv("BASE"));strcpy(ctl,getenv("CTL"));umask(0);return fuse_main(c,v,&ops,0);}
